"""The policies that `autoscale simulate` runs, and the options that it refuses."""

import pytest

from autoscaler.simulate.comparison import DEFAULT, OURS, RISKS, names
from serving import errors
from serving.cli.autoscale.simulation import chosen, service_options, text
from tests.objects import simulations


def test_default_policies_are_ours_its_risks_and_the_baselines() -> None:
    contenders = [(contender.policy, contender.risk) for contender in chosen([], None)]
    assert contenders[: 1 + len(RISKS)] == [(OURS, None), *((OURS, risk) for risk in RISKS)]
    assert [policy for policy, _ in contenders[1 + len(RISKS) :]] == list(DEFAULT)


def test_named_policies_run_once_besides_ours() -> None:
    assert [c.name for c in chosen(["hpa", "slipway", "hpa"], 1.0)] == ["slipway risk=1", "hpa"]


def test_all_means_every_policy() -> None:
    assert {c.policy for c in chosen(["all"], None)} == set(names())


def test_an_unknown_policy_is_refused_with_the_known_ones() -> None:
    with pytest.raises(
        errors.UserError, match=r"there is no policy magic; there are slipway, static, hpa.* all"
    ):
        chosen(["hpa", "magic"], None)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((3, 2, None, None, None, None, ""), "--max 2 is below --min 3"),
        ((0, 2, 0.0, None, None, None, ""), "--capacity 0 must be above 0"),
        ((0, 2, None, None, -1.0, None, ""), "--days -1 must be above 0"),
    ],
)
def test_an_invalid_value_is_refused_with_its_option(
    options: tuple[int, int, None, None, None, None, str], words: str
) -> None:
    with pytest.raises(errors.UserError, match=words):
        service_options(*options)


def test_text_has_a_row_for_every_policy_and_the_assumptions() -> None:
    report = simulations.report()
    lines = text(report).splitlines()
    assert all(any(line.startswith(row.name) for line in lines) for row in report.rows)
    assert lines[-1] == report.assumed[-1]

"""The policies that `autoscale simulate` runs, and the options that it refuses."""

import math
from pathlib import Path

import pytest

from autoscaler.simulate.comparison import DEFAULT, OURS, RISKS, names
from autoscaler.simulate.workloads.service import ServiceOptions
from serving import errors
from serving.cli.autoscale.simulation import chosen, run, service_options, text
from serving.cli.autoscale.sources import LoadSource
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
        ((0, 2, 0.0, None, None, None, ""), "--capacity 0 must be a finite number above 0"),
        ((0, 2, None, None, -1.0, None, ""), "--days -1 must be a finite number above 0"),
        ((0, 2, math.nan, None, None, None, ""), "--capacity nan must be a finite number above 0"),
        ((0, 2, math.inf, None, None, None, ""), "--capacity inf must be a finite number above 0"),
        ((0, 2, None, None, math.nan, None, ""), "--days nan must be a finite number above 0"),
        ((0, 2, None, None, None, math.nan, ""), "--history nan must be a finite number of at least 0"),
        ((0, 2, None, None, None, math.inf, ""), "--history inf must be a finite number of at least 0"),
    ],
)
def test_an_invalid_value_is_refused_with_its_option(
    options: tuple[int, int, None, None, None, None, str], words: str
) -> None:
    with pytest.raises(errors.UserError, match=words):
        service_options(*options)


def test_risk_is_refused_when_it_is_no_number() -> None:
    with pytest.raises(errors.UserError, match="--risk nan must be a number"):
        chosen([], math.nan)


def test_page_is_refused_before_the_simulation_when_its_json_file_has_the_name(tmp_path: Path) -> None:
    out = tmp_path / "result.json"
    with pytest.raises(errors.UserError, match=r"--out .*result\.json must not end in \.json with -o html"):
        run(
            LoadSource(tmp_path / "absent.csv"),
            ServiceOptions(),
            policies=[],
            risk=None,
            startup="60",
            seed=0,
            output="html",
            out=out,
            jobs=1,
        )


def test_text_has_a_row_for_every_policy_and_the_assumptions() -> None:
    report = simulations.report()
    lines = text(report).splitlines()
    assert all(any(line.startswith(row.name) for line in lines) for row in report.rows)
    assert lines[-1] == report.assumed[-1]

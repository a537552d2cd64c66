"""The cores that a Pod's annotation requests."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.embedded.pod_spec import cpuset, rules
from serving.resources import names


def _meta(text: str) -> dict[str, dict[str, str]]:
    return {"annotations": {names.CPUSET_ANNOTATION: text}}


@pytest.mark.parametrize(
    ("text", "cores"),
    [("0", {0}), ("0-2,5", {0, 1, 2, 5}), ("3, 1", {1, 3}), ("2-2", {2}), ("0,0-1", {0, 1})],
)
def test_core_lists_are_parsed_as_in_cpuset(text: str, cores: set[int]) -> None:
    assert cpuset.requested(_meta(text)) == cores


@pytest.mark.parametrize("text", ["", "a", "-1", "1-", "0,,1", "0-1-2", "0x1", "99999", "1.5", "٣"])
def test_invalid_core_list_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must be cores such as 0, 0-2 or 0-2,5"):
        cpuset.parse(text)
    assert cpuset.refusal(_meta(text), None)


def test_range_that_runs_backwards_is_refused() -> None:
    assert cpuset.refusal(_meta("3-1"), None) == "range 3-1 runs backwards"


def test_missing_cores_are_named() -> None:
    assert cpuset.refusal(_meta("1-3"), (0, 1)) == "this machine has no core 2, 3; it has 0, 1"
    assert cpuset.refusal(_meta("1-3"), None) is None, "the node is not known"
    assert cpuset.refusal({}, (0, 1)) is None


@given(st.sets(st.integers(0, 9999), min_size=1, max_size=20))
def test_core_list_is_parsed_back(cores: set[int]) -> None:
    assert cpuset.parse(",".join(map(str, cores))) == cores


def test_rule_of_a_pod_names_the_annotation() -> None:
    pod = {"metadata": _meta("x"), "spec": {"containers": []}}
    assert [cause.field for cause in rules.refusals(pod)] == ["metadata.annotations[slipway.dev/cpus]"]

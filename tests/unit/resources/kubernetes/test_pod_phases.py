"""Which phases of a Pod are final."""

import pytest

from serving.resources.kubernetes import pod_phases


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_pod_has_ended_when_its_phase_is_final(phase: str) -> None:
    assert pod_phases.has_ended({"status": {"phase": phase}})


@pytest.mark.parametrize(
    "status", [{"phase": "Pending"}, {"phase": "Running"}, {"phase": "Unknown"}, {}, None]
)
def test_a_pod_has_not_ended_when_its_phase_is_another_or_missing(status: dict[str, str] | None) -> None:
    assert not pod_phases.has_ended({"status": status})
    assert not pod_phases.has_ended({})

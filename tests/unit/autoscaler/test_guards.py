"""The counts that the controller keeps although the policy decides on fewer replicas."""

import pytest

from autoscaler import guards
from autoscaler.decision_values import Decision
from autoscaler.other_writers import Raised
from autoscaler.signals.board import Health

NEED = Decision(3, "Forecast", "for the load expected within 60 s", needed=3)
BROKEN = (Health("gateway-b", healthy=False, message="does not answer"),)
MOMENT = 100.0


@pytest.mark.parametrize(
    ("desired", "most", "kept", "reason"),
    [(10, 20, 10, "MetricsMissing"), (10, 5, 5, "MetricsMissing"), (10, 3, 3, "Forecast")],
)
def test_replicas_are_kept_within_the_maximum_when_readings_are_missing(
    desired: int, most: int, kept: int, reason: str
) -> None:
    decision = guards.without_readings(NEED, desired, most, BROKEN)
    assert (decision.replicas, decision.reason) == (kept, reason)
    assert ("gateway-b: does not answer" in decision.message) is (reason == "MetricsMissing")
    assert ("the maximum is 5" in decision.message) is (kept == 5)


@pytest.mark.parametrize(
    ("most", "kept", "reason"),
    [(20, 10, "RaisedByAnother"), (5, 5, "RaisedByAnother"), (3, 3, "Forecast")],
)
def test_a_raised_count_is_kept_within_the_maximum_when_another_writer_raised_it(
    most: int, kept: int, reason: str
) -> None:
    raised = Raised(10, at=MOMENT, times=1)
    for desired in (10, kept):
        decision = guards.after_a_raise(NEED, desired, most, raised, MOMENT + 300)
        assert (decision.replicas, decision.reason) == (kept, reason), desired
    assert guards.after_a_raise(NEED, kept, most, raised, MOMENT + 601) == NEED


def test_a_count_is_not_kept_when_it_is_not_the_raised_one() -> None:
    raised = Raised(10, at=MOMENT, times=1)
    assert guards.after_a_raise(NEED, 6, 20, raised, MOMENT + 1) == NEED

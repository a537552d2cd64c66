"""The measured value of a constraint."""

import pytest

from serving.resources.tuning.trial import Estimate, LatencyAt, Window
from tuner.constraints import measured_value


def window(failed: float, percentile: int) -> Window:
    """Return a window with a share of failed requests and a latency of 0.05 s."""
    return Window(
        level=4,
        seconds=10,
        requests=100,
        meets="Yes",
        throughput=Estimate(value=10, low=10, high=10),
        error_rate=Estimate(value=failed, low=failed, high=failed),
        latencies=[LatencyAt(metric="latency", percentile=percentile, value=0.05, low=0.05, high=0.05)],
    )


@pytest.mark.parametrize("percentile", range(1, 100))
def test_latency_is_measured_when_as_many_requests_fail_as_lie_above_the_percentile(percentile: int) -> None:
    value = measured_value(window((100 - percentile) / 100, percentile), "latency", percentile)
    assert value == Estimate(value=0.05, low=0.05, high=0.05)


@pytest.mark.parametrize("percentile", range(1, 100))
def test_latency_has_no_value_when_one_more_of_a_million_requests_fails(percentile: int) -> None:
    failed = (100 - percentile) / 100 + 1e-6
    assert measured_value(window(failed, percentile), "latency", percentile) is None

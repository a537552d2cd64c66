"""The activator's page of metrics."""

from serving.router.activator.metrics import ActivatorMetrics
from serving.router.metrics.labels import Labels

D = Labels("default", "digits", "stable", "digits-stable-1")


def test_revision_has_one_sample_when_a_removed_backend_still_answers_and_it_is_held_again() -> None:
    metrics = ActivatorMetrics("local", lambda: [(D, 0), (D, 2)])
    metrics.held(D)
    samples = [line for line in metrics.page().splitlines() if line.startswith("slipway_requests_held{")]
    assert samples == [f"slipway_requests_held{{{D.text}}} 2"]

"""Expected ratios between specs before any measurement."""

from typing import Any

import numpy as np
import pytest

from serving.resources.tuning.experiment import ProfilingExperimentSpec
from tuner.specs import scaling
from tuner.specs.space import Space

FREE = np.zeros(2)


def space(category: str, name: str, *values: str, **more: Any) -> Space:
    """Return a space of one axis."""
    parameter = {"name": name, "feasibleSpace": {"list": list(values)}, **more}
    return Space.of(
        ProfilingExperimentSpec.model_validate(
            {
                "target": {"inference": "digits"},
                "tunableParameters": [{"category": category, "parameters": [parameter]}],
            }
        )
    )


@pytest.mark.parametrize(
    ("tuned", "times"),
    [
        (space("resource", "cpu", "500m", "1"), 2.0),
        (space("resource", "cpu", "500m", "1", scale="linear"), 2.0),
        (space("resource", "gpu.cores", "25", "100"), 2.0),
        (space("resource", "memory", "1Gi", "4Gi"), 1.0),
        (space("resource", "gpu.memory", "1Gi", "4Gi"), 1.0),
        (space("batching", "batchSize", "1", "8"), 8**0.3),
        (space("batching", "timeout", "1ms", "8ms"), 1.0),
        (space("env", "WORKERS", "1", "8", parameterType="int"), 8**0.3),
        (space("args", "max-num-seqs", "1", "8", parameterType="int"), 8**0.3),
        (space("args", "max-num-seqs", "1", "8", parameterType="int", scale="linear"), 8**0.3),
        (space("args", "cache-bytes", "1024", "1048576", parameterType="int"), 1.0),
        (space("args", "memory-share", "0.5", "1"), 1.0),
        (space("env", "OFFSET", "0", "8", parameterType="int"), 1.0),
        (space("env", "KIND", "1", "8", parameterType="categorical"), 1.0),
    ],
)
def test_expected_throughput_grows_with_compute_and_concurrency(tuned: Space, times: float):
    assert np.diff(scaling.of_space(tuned, "throughput", FREE)) == pytest.approx(np.log(times))


@pytest.mark.parametrize(
    ("metric", "times"),
    [
        ("throughput", 2.0),
        ("tokensPerSecond", 2.0),
        ("latency", 1.0),
        ("cost", 1 / 3),
        ("throughputPerCost", 2 / 3),
        ("tokensPerCost", 2 / 3),
        ("costAtRate", 2 / 3),
    ],
)
def test_expected_objective_follows_throughput_and_cost(metric: str, times: float):
    cpu = space("resource", "cpu", "1", "2")
    assert np.diff(scaling.of_space(cpu, metric, np.log([1.0, 3.0]))) == pytest.approx(np.log(times))

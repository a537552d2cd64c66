"""The cost of a replica follows from its resources and the prices; a missing price is an error."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.errors import Permanent
from serving.planning.inference.revision import CONTAINER
from serving.resources.inference import Resources
from serving.resources.tuning.experiment import Prices, ProfilingExperimentSpec
from tuner.specs import prices
from tuner.specs.prices import Amounts
from tuner.specs.space import Space

GIB = 2.0**30


def prices_of(**values: Any) -> Prices:
    return Prices.model_validate(values)


def test_cores_and_memory_are_added_up() -> None:
    cost = prices.cost_per_hour(Amounts(cpu=1.5, memory=2 * GIB), prices_of(cpu="0.04", memory="0.005"))
    assert cost == pytest.approx(0.07)


def test_unlimited_names_resources_of_the_predictor_and_of_no_other_container() -> None:
    names = ["cpu", "memory", "gpu.cores"]
    other = {"name": "proxy"}
    without = {"name": CONTAINER, "resources": {"limits": {"memory": "1Gi"}}}
    asking = {"name": CONTAINER, "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}
    assert prices.unlimited([without, other], names) == ("cpu",)
    assert prices.unlimited([other, asking], names) == ()


def test_resources_without_a_price_are_free() -> None:
    assert prices.cost_per_hour(Amounts(cpu=4, memory=GIB, gpus=1), prices_of(memory="2")) == 2.0


@pytest.mark.parametrize(
    ("amounts", "cost"),
    [
        (Amounts(gpu_cores=30, gpu_memory=4 * GIB), 0.5 * 2),
        (Amounts(gpu_cores=80, gpu_memory=4 * GIB), 0.8 * 2),
        (Amounts(gpu_cores=30), 0.3 * 2),
        (Amounts(gpu_memory=2 * GIB), 0.25 * 2),
        (Amounts(gpus=2), 4),
    ],
)
def test_gpu_share_costs_the_larger_of_memory_and_cores(amounts: Amounts, cost: float) -> None:
    assert prices.cost_per_hour(amounts, prices_of(gpu="2", gpuMemory="8Gi")) == pytest.approx(cost)


def test_gpu_share_of_unknown_size_costs_a_whole_gpu() -> None:
    assert prices.cost_per_hour(Amounts(gpu_memory=GIB), prices_of(gpu="2")) == 2.0
    assert prices.cost_per_hour(Amounts(gpu_memory=GIB, gpu_cores=25), prices_of(gpu="2")) == 0.5


@pytest.mark.parametrize("amounts", [Amounts(), Amounts(gpu_memory=np.array([0.0, GIB]))])
@pytest.mark.parametrize("whole", ["0", "0Gi", "1e99"])
def test_memory_of_a_whole_gpu_is_refused_when_no_share_of_it_exists(amounts: Amounts, whole: str) -> None:
    with pytest.raises(Permanent, match=r"^spec\.prices\.gpuMemory: ") as error:
        prices.cost_per_hour(amounts, prices_of(gpu="2", gpuMemory=whole))
    assert error.value.reason == "PricesMissing"


@given(st.floats(0, 100), st.floats(0, 100), st.floats(0, 1e12), st.floats(0, 1e12))
def test_cost_never_falls_with_more_resources(
    cores: float, more_cores: float, memory: float, more_memory: float
) -> None:
    given_ = prices_of(cpu="0.04", memory="0.005", gpu="2", gpuMemory="80Gi")
    less = prices.cost_per_hour(Amounts(cores, memory, memory, cores), given_)
    more = prices.cost_per_hour(
        Amounts(cores + more_cores, memory + more_memory, memory + more_memory, cores + more_cores), given_
    )
    assert more >= less >= 0


def experiment(names: list[tuple[str, str]], objective: str, **more: Any) -> ProfilingExperimentSpec:
    rate = {"rate": "5"} if objective == "costAtRate" else {}
    return ProfilingExperimentSpec.model_validate(
        {
            "target": {"inference": "digits"},
            "tunableParameters": [
                {
                    "category": "resource",
                    "parameters": [
                        {"name": name, "feasibleSpace": {"list": [value]}} for name, value in names
                    ],
                },
            ],
            "objective": {"objectiveMetricName": objective, **rate},
            **more,
        }
    )


ALL = {"cpu": "1", "memory": "1", "gpu": "1", "gpuMemory": "8Gi"}


@pytest.mark.parametrize("objective", ["throughputPerCost", "tokensPerCost", "costAtRate", "cost"])
@pytest.mark.parametrize(
    ("name", "value", "missing"),
    [
        ("cpu", "1", "cpu"),
        ("memory", "1Gi", "memory"),
        ("gpu.cores", "10", "gpu"),
        ("gpu.memory", "1Gi", "gpu"),
        ("gpu.memory", "1Gi", "gpuMemory"),
    ],
)
def test_tuned_resource_needs_a_price_when_the_objective_involves_cost(
    objective: str, name: str, value: str, missing: str
) -> None:
    incomplete = {key: price for key, price in ALL.items() if key != missing}
    spec = experiment([(name, value)], objective, prices=incomplete)
    with pytest.raises(Permanent, match=rf"spec\.prices\.{missing}: is missing; {name} is tuned") as error:
        prices.check(spec, Space.of(spec), np.ones(1))
    assert error.value.reason == "PricesMissing"
    prices.check(
        complete := experiment([(name, value)], objective, prices=ALL), Space.of(complete), np.ones(1)
    )


def test_max_cost_needs_prices_and_a_latency_objective_does_not() -> None:
    spec = experiment([("cpu", "1")], "latency")
    prices.check(spec, Space.of(spec), np.zeros(1))
    spec = experiment([("cpu", "1")], "latency", maxCost="3")
    with pytest.raises(Permanent, match="maxCost limits cost"):
        prices.check(spec, Space.of(spec), np.ones(1))


def test_replicas_without_cost_are_refused_when_the_objective_involves_cost() -> None:
    spec = experiment([("cpu", "1")], "cost", prices={"cpu": "0"})
    with pytest.raises(Permanent, match="would cost nothing"):
        prices.check(spec, Space.of(spec), np.zeros(1))


def test_gpu_memory_above_that_of_a_whole_gpu_is_refused() -> None:
    spec = experiment([("gpu.memory", "9Gi")], "cost", prices=ALL)
    with pytest.raises(Permanent, match="a whole GPU has 8Gi, and 9Gi of it is tuned"):
        prices.check(spec, Space.of(spec), np.ones(1))


def test_costs_from_a_trial_differ_from_its_own_by_the_tuned_resources() -> None:
    spec = experiment([("cpu", "1")], "cost", prices=ALL)
    axes = {"cpu": ["1", "2"], "memory": ["1Gi", "3Gi"], "gpu.cores": ["10", "60"], "gpu.memory": ["2Gi"]}
    parameters = [{"name": name, "feasibleSpace": {"list": values}} for name, values in axes.items()]
    tunable = [{"category": "resource", "parameters": parameters}]
    spec = ProfilingExperimentSpec.model_validate(
        {**spec.model_dump(by_alias=True, exclude_none=True), "tunableParameters": tunable}
    )
    space = Space.of(spec)
    gpu = Resources.model_validate({"gpu": {"memory": "2Gi", "cores": 10}})
    all_costs = prices.costs(Amounts(cpu=3, memory=5 * GIB), gpu, space, spec.prices)
    for row in (0, 5):
        assert prices.costs_from_trial(spec, space, row, all_costs[row]) == pytest.approx(all_costs)

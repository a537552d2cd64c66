"""Experiments end with the same trials and recommendation when writes fail or the controller is killed."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from serving import clock, errors
from serving.kube import Watches
from serving.objects import Object
from serving.resources import kinds
from serving.resources.kubernetes import conditions
from tests.fakes.kube import FakeKube
from tests.fakes.surroundings import ready_version
from tests.objects.tuning import experiments
from tests.rig.control_plane.convergence import QUICK, Case, running, until
from tuner.controller import ExperimentController
from tuner.experiment_plan import make_plan
from tuner.planning.exchange import ExperimentPlan, PlanRequest
from tuner.settings import DEFAULTS

NS = "default"
THROUGHPUT = {"500m": 100.0, "1": 220.0}
"""Cores → requests per second: a second half-core is worth its price."""


class LocalSearch:
    """A search worker that plans in this process."""

    async def plan(self, request: PlanRequest) -> ExperimentPlan:
        await asyncio.sleep(0)
        return make_plan(request, clock.now(), experiments.plain)

    def close(self) -> None: ...


def experiment(**fields: Any) -> Object:
    space = experiments.parameters(cpu=["500m", "1"], memory=["256Mi", "512Mi"])
    return experiments.experiment(
        **{"tunableParameters": space, "maxNumTrials": 4, "parallelism": 2, **fields}
    )


def arrange(**fields: Any) -> FakeKube:
    api = FakeKube()
    api.add(kinds.MODEL_VERSION, ready_version("v1"))
    api.add(kinds.PROFILING_EXPERIMENT, experiment(**fields))
    return api


def replace(api: FakeKube) -> None:
    api.remove(kinds.PROFILING_EXPERIMENT, NS, "pe")
    api.add(kinds.PROFILING_EXPERIMENT, experiment())


def lower_parallelism(api: FakeKube) -> None:
    api.change(kinds.PROFILING_EXPERIMENT, NS, "pe", {"spec": {"parallelism": 1}})


class SlowSearch(LocalSearch):
    """A search whose first plan is ready only when the controller has seen a change of the experiment."""

    def __init__(self, api: FakeKube, watches: Watches, change: Callable[[FakeKube], None]) -> None:
        self._api = api
        self._experiments = watches.of(kinds.PROFILING_EXPERIMENT)
        self._change = change
        self.is_first = True

    async def plan(self, request: PlanRequest) -> ExperimentPlan:
        plan = await super().plan(request)
        if self.is_first:
            self.is_first = False
            self._change(self._api)
            stored = self._api.find(kinds.PROFILING_EXPERIMENT)[0]["metadata"]
            while (self._experiments.get(NS, "pe") or {"metadata": None})["metadata"] != stored:
                await asyncio.sleep(0.002)
        return plan


class DyingSearch(LocalSearch):
    """A search whose process dies while `dies` is set."""

    def __init__(self) -> None:
        self.dies = True

    async def plan(self, request: PlanRequest) -> ExperimentPlan:
        if self.dies:
            raise errors.Temporary("SearchDied", "the process that searches for pe died")
        return await super().plan(request)


async def control(
    api: FakeKube, *, change: Callable[[FakeKube], None] | None = None, search: LocalSearch | None = None
) -> None:
    """Run the controller; `change` happens while it waits for the first plan."""
    kube = api.client("experiment")
    watches = Watches(kube)
    worker = SlowSearch(api, watches, change) if change is not None else search or LocalSearch()
    controller = ExperimentController(
        kube,
        watches,
        worker,  # type: ignore[arg-type]
        config=QUICK,
        settings=DEFAULTS,
    )
    await asyncio.gather(controller.run(), watches.run())


async def measure(api: FakeKube) -> None:
    """Finish each trial as soon as it exists."""
    while True:
        for trial in api.find(kinds.TRIAL):
            if "status" not in trial:
                cpu = trial["spec"]["settings"][0]["value"]
                patch = {"status": experiments.measured(THROUGHPUT[cpu])}
                api.change(kinds.TRIAL, NS, trial["metadata"]["name"], patch)
        await asyncio.sleep(0.005)


def final_state(api: FakeKube) -> Object:
    """Return the objects, without fields that depend on time."""
    result: Object = {}
    for trial in api.find(kinds.TRIAL):
        settings = " ".join(setting["value"] for setting in trial["spec"]["settings"])
        result[trial["metadata"]["name"]] = trial["spec"]["purpose"], trial["spec"]["seed"], settings
    for experiment_object in api.find(kinds.PROFILING_EXPERIMENT):
        status = experiment_object["status"]
        result["experiment"] = status["phase"], status["trials"], status["recommendation"]["trial"]
        result["conditions"] = [(c["type"], c["status"], c["reason"]) for c in status["conditions"]]
    for profile in api.find(kinds.CAPACITY_PROFILE):
        result[profile["metadata"]["name"]] = [point["throughput"] for point in profile["spec"]["points"]]
    return result


async def story(api: FakeKube) -> Object:
    def is_over() -> bool:
        experiment_object = api.find(kinds.PROFILING_EXPERIMENT)[0]
        return (experiment_object.get("status") or {}).get("phase") == "Succeeded"

    await until(is_over, "the experiment is over")
    return final_state(api)


CASE = Case(arrange, control, measure, story)


async def test_an_experiment_measures_confirms_and_recommends() -> None:
    end, writes = await CASE.undisturbed()
    purposes = [end[f"pe-{number}"][0] for number in range(1, 5)]
    assert purposes == ["Explore", "Explore", "Explore", "Confirm"]
    counts = {"total": 4, "running": 0, "succeeded": 4, "stoppedEarly": 0, "failed": 0}
    assert end["experiment"] == ("Succeeded", counts, "pe-4")
    assert writes >= 8


async def test_plan_of_a_deleted_experiment_is_not_applied_to_its_namesake() -> None:
    api = arrange(tunableParameters=experiments.parameters(cpu=["0"]))
    async with running(control(api, change=replace), measure(api)):
        end = await story(api)
    assert end["experiment"][0] == "Succeeded"


async def test_plan_of_an_earlier_spec_is_not_applied_when_the_spec_has_changed() -> None:
    api = arrange()
    async with running(control(api, change=lower_parallelism)):
        await until(
            lambda: "status" in api.find(kinds.PROFILING_EXPERIMENT)[0], "the experiment has a status"
        )
        (stored,) = api.find(kinds.PROFILING_EXPERIMENT)
    assert stored["status"]["observedGeneration"] == stored["metadata"]["generation"] == 2
    assert len(api.find(kinds.TRIAL)) == 1


async def test_experiment_has_a_condition_and_an_event_while_its_search_dies() -> None:
    api, search = arrange(), DyingSearch()

    def ready() -> tuple[str, str]:
        stored = (api.find(kinds.PROFILING_EXPERIMENT)[0].get("status") or {}).get("conditions")
        condition = conditions.find(stored, "Ready") or {}
        return condition.get("status", ""), condition.get("reason", "")

    async with running(control(api, search=search), measure(api)):
        await until(lambda: ready() == ("False", "SearchDied"), "the experiment reports its search")
        await until(lambda: bool(api.find(kinds.EVENT_V1)), "an event reports the search")
        search.dies = False
        end = await story(api)
    (event, *_) = [event for event in api.find(kinds.EVENT_V1) if event["reason"] == "SearchDied"]
    assert (event["type"], event["message"]) == ("Warning", "the process that searches for pe died")
    assert (end["experiment"][0], ready()) == ("Succeeded", ("True", "Recommended"))


@pytest.mark.parametrize("done", [False, True], ids=["refused", "answer-lost"])
async def test_trials_are_the_same_when_each_write_fails_in_turn(*, done: bool) -> None:
    assert await CASE.survives_failures(done=done) >= 8


@pytest.mark.parametrize("done", [False, True], ids=["before", "after"])
async def test_trials_are_the_same_when_the_controller_is_killed_at_each_write_in_turn(*, done: bool) -> None:
    assert await CASE.survives_kills(done=done) >= 8

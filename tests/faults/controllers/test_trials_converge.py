"""Trials end measured, and leave no Deployment or Pod, when any write fails or their controller is killed."""

import asyncio

import pytest

from serving.kube import Watches
from serving.objects import Object
from serving.resources import kinds
from serving.resources.tuning.trial import TrialStatus
from tests.fakes.instruments import NS, FakeInstruments, node, trial
from tests.fakes.kube import FakeKube
from tests.rig.control_plane.convergence import QUICK, Case, running, until
from tuner.settings import TrialSettings, TunerSettings
from tuner.trials import controller, replicas
from tuner.trials.controller import TrialController
from tuner.trials.cores import Cores
from tuner.trials.replicas import TrialReplicas
from tuner.trials.run import TrialRun
from tuner.trials.trial_status import Report

SETTINGS = TunerSettings(trials=TrialSettings(aftermath_seconds=0.01))


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller, "RETRY_SECONDS", 0.001)
    monkeypatch.setattr(replicas, "REMOVAL_POLL_SECONDS", 0.001)


def arrange() -> FakeKube:
    api = FakeKube()
    for number in (1, 2):
        api.add(kinds.TRIAL, trial(f"pe-{number}", number=number))
    return api


async def control(api: FakeKube) -> None:
    kube = api.client("trial")
    watches = Watches(kube)

    async def measure(obj: Object, cores: Cores, replicas: TrialReplicas, report: Report) -> TrialStatus:
        tools = FakeInstruments()
        run = TrialRun(obj, cores, replicas=replicas, instruments=tools, report=report, settings=SETTINGS)
        return await run.measure()

    controller = TrialController(
        kube, watches, measure, machine_cores=range(4), config=QUICK, settings=SETTINGS.trials
    )
    await asyncio.gather(controller.run(), watches.run())


def final_state(api: FakeKube) -> Object:
    result: Object = {}
    for obj in api.find(kinds.TRIAL):
        status = obj["status"]
        throughput = round(status["result"]["throughput"]["value"])
        key = obj["metadata"]["name"]
        result[key] = status["phase"], status["reason"], throughput, len(status["windows"])
    return result


async def story(api: FakeKube) -> Object:
    def is_over() -> bool:
        trials = api.find(kinds.TRIAL)
        over = all((obj.get("status") or {}).get("phase") == "Succeeded" for obj in trials)
        return over and not api.find(kinds.DEPLOYMENT) and not api.find(kinds.POD)

    await until(is_over, "every trial is over and its objects are deleted")
    return final_state(api)


CASE = Case(arrange, control, node, story)


async def test_trials_are_measured_and_leave_no_objects() -> None:
    end, writes = await CASE.undisturbed()
    assert end == {f"pe-{number}": ("Succeeded", "Measured", 200, 1) for number in (1, 2)}
    assert writes >= 14


async def test_status_of_a_measured_trial_is_replaced_when_others_have_changed_it() -> None:
    api = arrange()
    async with running(node(api), control(api)):
        await story(api)
        before = api.find(kinds.TRIAL)[0]["status"]
        condition = {**before["conditions"][0], "type": "Fake"}
        edit = {"phase": "Pending", "result": None, "conditions": [*before["conditions"], condition]}
        user = api.client("user")
        await user.patch(kinds.TRIAL, NS, "pe-1", {"status": edit}, subresource="status")
        await until(lambda: api.find(kinds.TRIAL)[0]["status"] == before)
        assert not api.find(kinds.DEPLOYMENT), "it is not measured again"


@pytest.mark.parametrize("done", [False, True], ids=["refused", "answer-lost"])
async def test_results_are_the_same_when_each_write_fails_in_turn(*, done: bool) -> None:
    assert await CASE.survives_failures(done=done) >= 14


@pytest.mark.parametrize("done", [False, True], ids=["before", "after"])
async def test_results_are_the_same_when_the_controller_is_killed_at_each_write_in_turn(
    *, done: bool
) -> None:
    assert await CASE.survives_kills(done=done) >= 14

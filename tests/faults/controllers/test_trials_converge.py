"""Killed, refused or left without an answer at any write, trials end measured, and nothing of them is left."""

import asyncio

import pytest

from serving.kube import Watches
from serving.objects import Object
from serving.resources import kinds
from serving.resources.trial import TrialStatus
from tests.fakes.instruments import Instruments, node, trial
from tests.fakes.kube import FakeKube
from tests.rig.convergence import QUICK, Case, until
from tuner.settings import TrialSettings, TunerSettings
from tuner.trials.controller import TrialController
from tuner.trials.cores import Cores
from tuner.trials.replicas import TrialReplicas
from tuner.trials.run import TrialRun
from tuner.trials.trial_status import Report

SETTINGS = TunerSettings(
    trials=TrialSettings(retry_seconds=0.001, aftermath_seconds=0.01, removal_poll_seconds=0.001)
)


def arrange() -> FakeKube:
    api = FakeKube()
    for number in (1, 2):
        api.add(kinds.TRIAL, trial(f"pe-{number}", number=number))
    return api


async def control(api: FakeKube) -> None:
    kube = api.client("trial")
    watches = Watches(kube)

    async def measure(found: Object, cores: Cores, replicas: TrialReplicas, report: Report) -> TrialStatus:
        tools = Instruments()
        run = TrialRun(found, cores, replicas=replicas, instruments=tools, report=report, settings=SETTINGS)
        return await run.measure()

    controller = TrialController(
        kube, watches, measure, machine=range(4), config=QUICK, settings=SETTINGS.trials
    )
    await asyncio.gather(controller.run(), watches.run())


def picture(api: FakeKube) -> Object:
    result: Object = {}
    for found in api.find(kinds.TRIAL):
        said = found["status"]
        done = round(said["result"]["throughput"]["value"])
        result[found["metadata"]["name"]] = said["phase"], said["reason"], done, len(said["windows"])
    return result


async def story(api: FakeKube) -> Object:
    def is_over() -> bool:
        trials = api.find(kinds.TRIAL)
        over = all((found.get("status") or {}).get("phase") == "Succeeded" for found in trials)
        return over and not api.find(kinds.DEPLOYMENT) and not api.find(kinds.POD)

    await until(is_over, "every trial is over and nothing of it is left")
    return picture(api)


CASE = Case(arrange, control, node, story)


async def test_trials_are_measured_and_nothing_is_left() -> None:
    end, writes = await CASE.undisturbed()
    assert end == {f"pe-{number}": ("Succeeded", "Measured", 200, 1) for number in (1, 2)}
    assert writes >= 14


@pytest.mark.parametrize("done", [False, True], ids=["refused", "answer-lost"])
async def test_same_results_when_each_write_fails_in_turn(*, done: bool) -> None:
    assert await CASE.survives_failures(done=done) >= 14


@pytest.mark.parametrize("done", [False, True], ids=["before", "after"])
async def test_same_results_when_killed_at_each_write_in_turn(*, done: bool) -> None:
    assert await CASE.survives_kills(done=done) >= 14

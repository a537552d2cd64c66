"""Trials whose replica, generator or API fails: their reasons, and the removal of their replicas."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from serving import clock, errors
from serving.kube import Watches
from serving.objects import Object
from serving.resources import kinds
from serving.resources.kinds import Kind
from serving.resources.tuning.experiment import Objective
from serving.resources.tuning.load import ExperimentLoad
from serving.resources.tuning.trial import TrialSpec, TrialStatus
from tests.fakes import instruments
from tests.fakes.instruments import NS, FakeInstruments, died, trial
from tests.fakes.kube import FakeKube
from tests.fakes.surroundings import blocked_version, ready_version
from tests.objects.deployments import deployment
from tests.rig.control_plane.convergence import QUICK, running, until
from tuner import trial_record
from tuner.objective import objective_value
from tuner.settings import DEFAULTS, TrialSettings, TunerSettings
from tuner.trials import controller, replicas, trial_deployment
from tuner.trials.controller import TrialController
from tuner.trials.cores import Cores
from tuner.trials.replicas import TrialReplicas
from tuner.trials.run import LOAD_TRIES, TrialRun, measurement_limit
from tuner.trials.trial_status import Report

QUICKLY = TrialSettings(aftermath_seconds=0.2, most_seconds=30.0)
Node = Callable[[FakeKube], Awaitable[None]]


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller, "RETRY_SECONDS", 0.001)
    monkeypatch.setattr(replicas, "REMOVAL_POLL_SECONDS", 0.001)


class Trials:
    """A Trial controller with fake instruments."""

    def __init__(self, before_window: Callable[[int], Any] | None = None, *, cores: int = 2) -> None:
        self.api = FakeKube()
        self.instruments = FakeInstruments(before_window)
        self.settings = QUICKLY
        self.cores = cores

    @asynccontextmanager
    async def controlled(self, node: Node = instruments.node) -> AsyncIterator[FakeKube]:
        kube = self.api.client("trial")
        watches = Watches(kube)

        async def measure(
            trial: Object, cores: Cores, replicas: TrialReplicas, report: Report
        ) -> TrialStatus:
            settings = TunerSettings(trials=self.settings)
            run = TrialRun(
                trial,
                cores,
                replicas=replicas,
                instruments=self.instruments,
                report=report,
                settings=settings,
            )
            return await run.measure()

        controller = TrialController(
            kube, watches, measure, machine_cores=range(self.cores), config=QUICK, settings=self.settings
        )
        async with running(controller.run(), watches.run(), node(self.api)):  # type: ignore[arg-type]
            yield self.api

    async def end_of(self, name: str = "pe-1") -> Object:
        """Return the status when the trial has ended and its Deployment is removed."""

        def is_over() -> bool:
            status = self.status(name)
            return status.get("phase") in {"Succeeded", "Failed"} and not self.api.find(kinds.DEPLOYMENT)

        await until(is_over, f"{name} is over")
        assert self.instruments.at_once == 0
        return self.status(name)

    def status(self, name: str) -> Object:
        stored = next(t for t in self.api.find(kinds.TRIAL) if t["metadata"]["name"] == name)
        return dict(stored.get("status") or {})

    def break_container(self, **state: Any) -> None:
        """Set the state of the replica's container."""
        for pod in self.api.find(kinds.POD):
            container = {"name": "predictor", "restartCount": 1, **state}
            self.api.change(
                kinds.POD, NS, pod["metadata"]["name"], {"status": {"containerStatuses": [container]}}
            )


def ended(reason: str) -> Object:
    return {"state": {"terminated": {"reason": reason, "exitCode": 137}}}


@pytest.mark.parametrize(("reason", "expected"), [("OOMKilled", "OutOfMemory"), ("Error", "Crashed")])
async def test_trial_fails_with_its_windows_when_the_replica_ends(reason: str, expected: str) -> None:
    async def forever(count: int) -> None:
        trials.break_container(**ended(reason))
        await asyncio.Event().wait()

    trials = Trials(lambda count: forever(count) if count == 2 else None)
    load = {**instruments.LOAD, "levels": ["1", "2", "3"]}
    async with trials.controlled() as api:
        api.add(kinds.TRIAL, trial("pe-1", load=load))
        status = await trials.end_of()
    assert (status["phase"], status["reason"]) == ("Failed", expected)
    assert [window["level"] for window in status["windows"]] == [1]
    assert "result" not in status


async def run_out_of_memory(trials: Trials) -> None:
    """Report the replica's end as the node does: a moment after the last answer."""
    await asyncio.sleep(0.05)
    trials.break_container(**ended("OOMKilled"))


async def test_trial_fails_when_the_node_reports_the_replicas_end_after_failed_requests() -> None:
    later: list[asyncio.Task[None]] = []
    trials = Trials(lambda count: later.append(asyncio.create_task(run_out_of_memory(trials))))
    trials.instruments.failing = True
    async with trials.controlled() as api:
        api.add(kinds.TRIAL, trial("pe-1"))
        status = await trials.end_of()
    assert status["reason"] == "OutOfMemory"


async def test_errors_of_failed_requests_are_noted() -> None:
    trials = Trials()
    trials.instruments.failing = True
    async with trials.controlled() as api:
        api.add(kinds.TRIAL, trial("pe-1"))
        status = await trials.end_of()
    failed = sum(window["errors"] for window in status["windows"])
    assert failed > 0
    assert (
        f"RequestsFailed: {failed} of {failed}; most often, {failed} times: status 503: busy"
        in status["notes"]
    )


async def test_result_has_the_percentile_of_the_objective() -> None:
    trials = Trials()
    async with trials.controlled() as api:
        api.add(kinds.TRIAL, trial("pe-1", objectivePercentile=75))
        status = TrialStatus.model_validate(await trials.end_of())
    assert status.result is not None
    objective = Objective(type="minimize", objective_metric_name="latency", percentile=75)
    value = objective_value(objective, status.result, 1.0, 1)
    assert value is not None
    assert value.value == pytest.approx(1 / 200, rel=0.05)


async def test_dead_generator_is_restarted_and_continues() -> None:
    trials = Trials(lambda count: died() if count == 2 else None)
    async with trials.controlled() as api:
        api.add(kinds.TRIAL, trial("pe-1", load={**instruments.LOAD, "levels": ["1", "2"]}))
        status = await trials.end_of()
    assert (status["phase"], status["reason"]) == ("Succeeded", "Measured")
    assert [window["level"] for window in status["windows"]] == [1, 2]
    assert status["notes"] == ["LoadRestarted: locust died"]
    assert trials.instruments.generators == [(1,), (1,)]


async def test_trial_fails_with_load_failed_when_the_generator_always_dies() -> None:
    trials = Trials(lambda count: died())
    async with trials.controlled() as api:
        api.add(kinds.TRIAL, trial("pe-1"))
        status = await trials.end_of()
    assert (status["phase"], status["reason"], status["message"]) == ("Failed", "LoadFailed", "locust died")
    assert len(trials.instruments.generators) == LOAD_TRIES + 1


def not_described(count: int) -> None:
    raise errors.Temporary("LoadFailed", "GET http://replica/v2/models/m: status 503")


async def test_replica_without_metadata_is_asked_again() -> None:
    trials = Trials()
    trials.instruments.before_plan = lambda count: not_described(count) if count == 1 else None
    async with trials.controlled() as api:
        api.add(kinds.TRIAL, trial("pe-1"))
        status = await trials.end_of()
    assert status["reason"] == "Measured"
    assert status["notes"] == ["LoadRetried: GET http://replica/v2/models/m: status 503"]


async def test_trial_fails_with_load_failed_when_the_replica_never_gives_metadata() -> None:
    trials = Trials()
    trials.instruments.before_plan = not_described
    async with trials.controlled() as api:
        api.add(kinds.TRIAL, trial("pe-1"))
        status = await trials.end_of()
    assert (status["reason"], status["message"]) == (
        "LoadFailed",
        "GET http://replica/v2/models/m: status 503",
    )
    assert trials.instruments.plans == LOAD_TRIES + 1
    record = trial_record.parse(next(iter(trials.api.find(kinds.TRIAL))))
    assert record.failed_to_load
    assert not record.load_is_invalid


async def test_trial_fails_by_the_replicas_end_when_it_gave_no_metadata_before() -> None:
    later: list[asyncio.Task[None]] = []

    def ends(count: int) -> None:
        later.append(asyncio.create_task(run_out_of_memory(trials)))
        not_described(count)

    trials = Trials()
    trials.instruments.before_plan = ends
    async with trials.controlled() as api:
        api.add(kinds.TRIAL, trial("pe-1"))
        status = await trials.end_of()
    assert status["reason"] == "OutOfMemory"


async def test_trial_ends_once_with_load_failed_when_its_measurement_has_a_defect() -> None:
    def fails(count: int) -> None:
        raise ZeroDivisionError("division by zero")

    trials = Trials(fails)
    async with trials.controlled() as api:
        api.add(kinds.TRIAL, trial("pe-1"))
        status = await trials.end_of()
    assert (status["reason"], status["message"]) == ("LoadFailed", "ZeroDivisionError: division by zero")
    assert status["notes"] == ["UnexpectedError: ZeroDivisionError: division by zero"]
    assert trials.instruments.windows == 1
    assert not trial_record.parse(next(iter(trials.api.find(kinds.TRIAL)))).load_is_invalid


async def test_replica_is_removed_before_its_cores_are_free_when_the_measurement_fails() -> None:
    seen: list[list[str]] = []

    def fails_once(count: int) -> None:
        seen.append([existing["metadata"]["name"] for existing in trials.api.find(kinds.DEPLOYMENT)])
        if count == 1:
            trials.api.add(kinds.TRIAL, trial("pe-2", number=2))
            raise errors.Internal(500, "InternalError", "the database has failed")

    trials = Trials(fails_once)
    async with trials.controlled() as api:
        api.add(kinds.TRIAL, trial("pe-1"))
        for name in ("pe-1", "pe-2"):
            assert (await trials.end_of(name))["reason"] == "Measured"
    assert [len(names) for names in seen] == [1, 1, 1]


async def test_not_ready_replica_fails_the_trial_with_the_cause_of_the_delay() -> None:
    async def never_ready(api: FakeKube) -> None:
        while True:
            for existing in api.find(kinds.DEPLOYMENT):
                pod = instruments.pod(existing)
                pod["status"] = {
                    "containerStatuses": [
                        {
                            "name": "predictor",
                            "state": {"waiting": {"reason": "ErrImagePull", "message": "no image"}},
                        }
                    ]
                }
                if not api.find(kinds.POD):
                    api.add(kinds.POD, pod)
            await asyncio.sleep(0.001)

    trials = Trials()
    async with trials.controlled(never_ready) as api:
        api.add(kinds.TRIAL, trial("pe-1", progressDeadline="50ms"))
        status = await trials.end_of()
    assert (status["phase"], status["reason"]) == ("Failed", "NotReady")
    assert status["message"] == "not ready after 50ms: ErrImagePull no image"


async def test_trial_is_refused_when_the_api_refuses_its_deployment() -> None:
    trials = Trials()
    trials.api.refusals.append(
        lambda kind, obj: "spec.template: no such field" if kind is kinds.DEPLOYMENT else ""
    )
    async with trials.controlled() as api:
        api.add(kinds.TRIAL, trial("pe-1"))
        status = await trials.end_of()
    assert (status["reason"], status["message"]) == ("Refused", "spec.template: no such field")


async def test_trial_is_not_refused_when_its_namespace_terminates() -> None:
    cause = errors.Cause("metadata.namespace", "default is being terminated", errors.NAMESPACE_TERMINATING)
    attempts: list[Object] = []

    def terminating(kind: Kind, obj: Object) -> str:
        if kind is kinds.DEPLOYMENT:
            attempts.append(obj)
            raise errors.Forbidden(403, "Forbidden", "default is being terminated", (cause,))
        return ""

    trials = Trials()
    trials.api.refusals.append(terminating)
    async with trials.controlled() as api:
        api.add(kinds.TRIAL, trial("pe-1"))
        await until(lambda: len(attempts) > 1, "the Deployment is tried again")
        assert trials.status("pe-1")["phase"] == "Starting"
        api.refusals.clear()
        status = await trials.end_of()
    assert status["reason"] == "Measured"


@pytest.mark.parametrize(("lasts", "reason"), [(False, "Measured"), (True, "Refused")])
async def test_refusal_of_the_pod_counts_when_it_lasts(*, lasts: bool, reason: str) -> None:
    refused: list[str] = []

    async def refusing(api: FakeKube) -> None:
        """Refuse the Pod of each Deployment, for ever or once."""
        while not refused:
            for existing in api.find(kinds.DEPLOYMENT):
                refused.append(existing["metadata"]["name"])
                failure = {"type": "ReplicaFailure", "status": "True", "message": "exceeded quota"}
                api.change(kinds.DEPLOYMENT, NS, refused[-1], {"status": {"conditions": [failure]}})
            await asyncio.sleep(0.001)
        await (asyncio.Event().wait() if lasts else instruments.node(api))

    trials = Trials()
    trials.settings = replace(QUICKLY, refusal_seconds=0.05 if lasts else 30.0)
    async with trials.controlled(refusing) as api:
        api.add(kinds.TRIAL, trial("pe-1"))
        status = await trials.end_of()
    assert status["reason"] == reason
    assert status["message"] == "exceeded quota" or not lasts


async def test_deployment_of_another_owner_is_unchanged_when_it_has_the_name_of_a_trial() -> None:
    """It says nothing about the spec, which another trial may measure under its own name."""
    trials = Trials()
    trials.api.add(kinds.DEPLOYMENT, deployment("pe-1"))
    async with trials.controlled() as api:
        api.add(kinds.TRIAL, trial("pe-1"))
        await until(lambda: trials.status("pe-1").get("phase") == "Failed", "it is over")
        await asyncio.sleep(0.02)
        assert trials.status("pe-1")["reason"] == "Interrupted"
        assert trials.status("pe-1")["message"].endswith(", and is not this trial's")
        assert [existing["metadata"]["name"] for existing in api.find(kinds.DEPLOYMENT)] == ["pe-1"]


async def test_replica_of_a_killed_attempt_is_replaced() -> None:
    measured: list[str] = []
    trials = Trials(
        lambda count: measured.extend(d["metadata"]["uid"] for d in trials.api.find(kinds.DEPLOYMENT))
    )
    owner = trials.api.add(kinds.TRIAL, trial("pe-1"))
    spec = TrialSpec.model_validate(owner["spec"])
    old = trials.api.add(kinds.DEPLOYMENT, trial_deployment.deployment(owner, spec, Cores((0,), (1,)), 1))
    async with trials.controlled():
        await trials.end_of()
    assert len(measured) == 1
    assert measured != [old["metadata"]["uid"]]


async def test_trial_times_out() -> None:
    async def forever() -> None:
        await asyncio.Event().wait()

    trials = Trials(lambda count: forever())
    trials.settings = replace(QUICKLY, most_seconds=0.1)
    async with trials.controlled() as api:
        api.add(kinds.TRIAL, trial("pe-1"))
        status = await trials.end_of()
    assert (status["phase"], status["reason"]) == ("Failed", "TimedOut")


async def test_trial_of_long_windows_has_more_time() -> None:
    async def forever() -> None:
        await asyncio.Event().wait()

    trials = Trials(lambda count: forever())
    trials.settings = replace(QUICKLY, most_seconds=0.01)
    load = {**instruments.LOAD, "levels": [str(users) for users in range(1, 9)], "windowSeconds": 3600}
    async with trials.controlled() as api:
        api.add(kinds.TRIAL, trial("pe-1", load=load))
        status = await trials.end_of()
    assert status["reason"] == "TimedOut"
    assert status["message"] == "not done after 0.132 s of load"
    assert measurement_limit(ExperimentLoad(window_seconds=600, levels=["1"] * 8), DEFAULTS) > 8 * 600


async def test_deleted_trial_frees_its_cores_for_the_next() -> None:
    async def forever() -> None:
        await asyncio.Event().wait()

    trials = Trials(lambda count: forever() if count == 1 else None)
    async with trials.controlled() as api:
        api.add(kinds.TRIAL, trial("pe-1"))
        await until(lambda: trials.instruments.windows == 1, "the first is measured")
        api.add(kinds.TRIAL, trial("pe-2", number=2))
        await until(lambda: trials.status("pe-2").get("message") == "waits for cores", "the second waits")
        api.remove(kinds.TRIAL, NS, "pe-1")
        status = await trials.end_of("pe-2")
    assert status["reason"] == "Measured"


async def test_a_trial_of_a_blocked_version_waits_and_begins_anew_when_it_is_allowed() -> None:
    async def forever() -> None:
        await asyncio.Event().wait()

    trials = Trials(lambda count: forever() if count == 1 else None)
    trials.api.add(kinds.MODEL_VERSION, ready_version("v1"))

    def judge(version: Object) -> None:
        trials.api.change(kinds.MODEL_VERSION, NS, "v1", {"status": version["status"]})

    async with trials.controlled() as api:
        api.add(kinds.TRIAL, trial("pe-1", modelVersion="v1"))
        await until(lambda: trials.instruments.windows == 1, "it is measured")
        judge(blocked_version("v1"))
        await until(lambda: trials.status("pe-1").get("phase") == "Pending", "it waits")
        assert "v1 is blocked: model.pkl (Pickle)" in trials.status("pe-1")["message"]
        assert api.find(kinds.DEPLOYMENT) == []
        api.add(kinds.TRIAL, trial("pe-2", number=2, modelVersion="v1"))
        await until(lambda: trials.status("pe-2").get("phase") == "Pending", "the second waits too")
        assert api.find(kinds.DEPLOYMENT) == []
        judge(ready_version("v1"))
        for name in ("pe-1", "pe-2"):
            assert (await trials.end_of(name))["reason"] == "Measured"


async def test_concurrent_trials_are_bounded_by_cores() -> None:
    most: list[int] = []

    async def short() -> None:
        most.append(trials.instruments.at_once)
        await asyncio.sleep(0.02)

    trials = Trials(lambda count: short(), cores=4)
    async with trials.controlled() as api:
        for number in range(1, 6):
            api.add(kinds.TRIAL, trial(f"pe-{number}", number=number))
        for number in range(1, 6):
            assert (await trials.end_of(f"pe-{number}"))["reason"] == "Measured"
    assert max(most) == 2
    assert set(trials.instruments.generators) == {(3,), (2,)}


@pytest.mark.parametrize("end", ["measured", "deleted", "blocked"])
async def test_trial_waits_for_an_older_one_that_needs_more_cores(end: str) -> None:
    gates = [asyncio.Event() for _ in range(5)]
    trials = Trials(lambda count: gates[count].wait(), cores=4)
    trials.api.add(kinds.MODEL_VERSION, ready_version("v1"))

    def is_waiting(name: str) -> bool:
        return trials.status(name).get("message") == "waits for cores"

    async with trials.controlled() as api:
        for number in (1, 2):
            api.add(kinds.TRIAL, trial(f"pe-{number}", number=number))
        await until(lambda: trials.instruments.windows == 2, "two are measured")
        api.add(kinds.TRIAL, trial("large", number=3, cpu="3", modelVersion="v1"))
        await until(lambda: is_waiting("large"), "it needs all cores")
        gates[1].set()
        await until(lambda: len(api.find(kinds.DEPLOYMENT)) == 1, "two cores are free")
        api.add(kinds.TRIAL, trial("young", number=4))
        await until(lambda: is_waiting("young"), "it waits for the older one")
        if end == "measured":
            gates[2].set()
        elif end == "deleted":
            api.remove(kinds.TRIAL, NS, "large")
        else:
            status = blocked_version("v1")["status"]
            api.change(kinds.MODEL_VERSION, NS, "v1", {"status": status})
        await until(lambda: trials.instruments.windows == 3, "the next one is measured")
        assert is_waiting("young") == (end == "measured")
        for gate in gates:
            gate.set()
        await trials.end_of("young")


async def test_other_processes_on_the_replicas_cores_are_noted() -> None:
    trials = Trials(lambda count: asyncio.sleep(0.02))
    trials.instruments.cores_busy = time.monotonic  # all of one core
    async with trials.controlled() as api:
        api.add(kinds.TRIAL, trial("pe-1"))
        status = await trials.end_of()
    assert status["notes"] == [
        "MachineBusy: other processes used up to 100% of the replica's cores; alone it may do more"
    ]


async def test_extended_window_has_its_first_start_and_the_share_of_other_processes_over_both_parts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def few_requests(count: int) -> None:
        trials.instruments.throughput = 2.0 if count == 1 else 200.0

    trials = Trials(few_requests)
    began = datetime(2026, 1, 1, tzinfo=UTC)
    monkeypatch.setattr(clock, "now", lambda: began + timedelta(seconds=trials.instruments.windows))
    # After the first part others have used the cores for years; over both parts, not at all.
    trials.instruments.cores_busy = lambda: 1e9 if trials.instruments.windows == 1 else 0.0
    load = {**instruments.LOAD, "levels": [], "maxLevel": "1"}
    async with trials.controlled() as api:
        api.add(kinds.TRIAL, trial("pe-1", load=load))
        status = await trials.end_of()
    assert status["reason"] == "Measured"
    assert trials.instruments.windows > len(status["windows"])
    assert status["windows"][0]["startTime"] == "2026-01-01T00:00:00Z"
    assert not [note for note in status["notes"] if note.startswith("MachineBusy")]


@pytest.mark.parametrize(
    "error",
    [
        errors.Unavailable("away"),
        errors.Internal(500, "InternalError", "the database has failed"),
        errors.Conflict(409, "Conflict", "the object has changed"),
    ],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("written", [3, 5], ids=["before the window", "with the result"])
async def test_result_is_written_after_the_api_was_away(error: Exception, written: int) -> None:
    trials = Trials()
    trials.api.fail_next(error, skip=written)
    trials.api.fail_next(error, skip=written + 1)
    async with trials.controlled() as api:
        api.add(kinds.TRIAL, trial("pe-1"))
        status = await trials.end_of()
    assert status["reason"] == "Measured"
    assert trials.instruments.windows == 1


async def test_trial_is_measured_when_it_replaces_another_of_its_name_during_the_measurement() -> None:
    """A watch that starts again shows the deletion and the creation as one change."""

    def replaced(count: int) -> None:
        if count == 1:
            (stored,) = trials.api.find(kinds.TRIAL)
            metadata = {**stored["metadata"], "uid": "another"}
            trials.api._replace(
                kinds.TRIAL, (kinds.TRIAL.plural, NS, "pe-1"), {**stored, "metadata": metadata, "status": {}}
            )

    trials = Trials(replaced)
    async with trials.controlled() as api:
        api.add(kinds.TRIAL, trial("pe-1"))
        status = await trials.end_of()
        assert [stored["metadata"]["uid"] for stored in api.find(kinds.TRIAL)] == ["another"]
    assert status["reason"] == "Measured"
    assert trials.instruments.windows == 2


async def test_single_core_is_noted() -> None:
    trials = Trials(cores=1)
    async with trials.controlled() as api:
        api.add(kinds.TRIAL, trial("pe-1"))
        status = await trials.end_of()
    assert [note.split(":")[0] for note in status["notes"]] == ["GeneratorShared"]
    assert trials.instruments.generators == [(0,)]

"""The Deployment of a trial, its notes and its status."""

import datetime as dt
from typing import Any

from serving.resources import names
from serving.resources.tuning.trial import TrialSpec, TrialStatus, Window
from tests.objects.tuning import experiments
from tuner.trials import trial_deployment, trial_status
from tuner.trials.cores import Cores

NOW = dt.datetime(2026, 1, 1, 0, 10, tzinfo=dt.UTC)
APART = Cores((0,), (1,))
TRIAL: dict[str, Any] = {"metadata": {"name": "pe-1", "namespace": "default", "uid": "u", "generation": 1}}


def spec(cpu: str = "1", memory: str = "1Mi") -> TrialSpec:
    container = {"name": "predictor", "resources": {"limits": {"cpu": cpu, "memory": memory}}}
    labels = {names.INFERENCE_LABEL: "digits"}
    template = {
        "metadata": {"annotations": {"a": "b"}, "labels": labels},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 30},
    }
    return TrialSpec(experiment="pe", number=1, template=template, model_name="digits")


def test_deployment_has_no_label_of_a_predictor() -> None:
    body = trial_deployment.deployment(TRIAL, spec(), APART, 2)
    template = body["spec"]["template"]
    assert template["metadata"]["labels"] == {names.TRIAL_LABEL: "pe-1", names.EXPERIMENT_LABEL: "pe"}
    assert template["metadata"]["annotations"] == {"a": "b", names.CPUSET_ANNOTATION: "0"}
    assert template["spec"]["terminationGracePeriodSeconds"] == 2
    assert body["spec"]["replicas"] == 1
    assert body["metadata"]["ownerReferences"][0]["uid"] == "u"


def test_too_few_cores_are_noted() -> None:
    assert trial_deployment.notes_before(spec(), APART) == []
    assert trial_deployment.notes_before(spec(), Cores((0,), (0,)))[0].startswith("GeneratorShared")
    assert "limit is 2 cores, but the replica had 1" in trial_deployment.notes_before(spec(cpu="2"), APART)[0]


def used(cpu: float, memory: int, seconds: float = 10.0) -> Window:
    return Window.model_validate(
        experiments.window(usage={"cpuCores": cpu, "memoryBytes": memory}, seconds=seconds)
    )


def test_exceeded_limits_are_noted() -> None:
    assert trial_deployment.notes_after(spec(), [used(1.05, 2**20)]) == []
    assert trial_deployment.notes_after(spec(), [used(1.0, 2**20), used(1.6, 2**20)]) == [
        "LimitNotEnforced: it used 1.60 cores of 1"
    ]
    assert trial_deployment.notes_after(spec(), [used(1.0, 2**21)]) == [
        "LimitNotEnforced: it used 2097152 bytes of memory of 1048576"
    ]


def test_short_window_may_use_one_more_period_of_the_limit() -> None:
    quarter = spec(cpu="250m")
    assert trial_deployment.notes_after(quarter, [used(0.2857, 2**20, seconds=0.5)]) == []
    assert trial_deployment.notes_after(quarter, [used(0.34, 2**20, seconds=0.5)]) != []
    assert trial_deployment.notes_after(quarter, [used(0.2857, 2**20, seconds=2.0)]) == [
        "LimitNotEnforced: it used 0.29 cores of 0.250"
    ]


def test_failures_are_noted_with_the_most_frequent_error() -> None:
    assert trial_deployment.notes_on_failures(60, {}) == []
    notes = trial_deployment.notes_on_failures(60, {"status 503": 2, "status 400: no input": 40})
    assert notes == ["RequestsFailed: 42 of 60; most often, 40 times: status 400: no input"]


def test_disturbance_is_noted_above_the_allowed_share() -> None:
    assert trial_deployment.notes_on_disturbance([], 0.2) == []
    assert trial_deployment.notes_on_disturbance([-0.01, 0.2], 0.2) == []
    assert trial_deployment.notes_on_disturbance([0.05, 0.93], 0.2)[0].startswith(
        "MachineBusy: other processes used up to 93%"
    )


def test_ready_condition_has_the_reason_of_the_trials_end() -> None:
    begun = trial_status.begun(["a note"], NOW)
    ready = trial_status.as_written(TRIAL, begun, NOW)["conditions"][0]
    assert (ready["type"], ready["status"], ready["reason"]) == ("Ready", "False", "Starting")
    over = trial_status.ended(
        begun, "OutOfMemory", "too much", result=None, notes=["a note", "another"], seconds=3.21, now=NOW
    )
    status = trial_status.as_written(TRIAL, over, NOW)
    assert (status["phase"], status["reason"], status["seconds"]) == ("Failed", "OutOfMemory", 3.21)
    assert status["notes"] == ["a note", "another"]
    assert status["conditions"][0]["reason"] == "OutOfMemory"
    stopped = trial_status.ended(
        begun, "BreaksConstraint", "", result=used(1, 1), notes=[], seconds=1, now=NOW
    )
    assert stopped.phase == "Succeeded"


def test_unknown_times_are_omitted() -> None:
    status = trial_status.as_written(TRIAL, TrialStatus(phase="Pending"), NOW)
    assert "startTime" not in status
    assert "completionTime" not in status

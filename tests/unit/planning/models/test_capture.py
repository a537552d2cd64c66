from typing import Any

import pytest

from serving.objects import Object
from serving.planning.models import capture, capture_job
from serving.planning.models.capture import (
    Captured,
    CaptureFailed,
    CaptureStep,
    CreateCapture,
    DiscardCapture,
    ObservedCapture,
    WaitForCapture,
)
from serving.planning.models.version import BuildImage, FailVersion, WaitForSource
from serving.resources.kubernetes.cluster_versions import ClusterVersions, NodeVersions
from serving.settings import RuntimeImageSettings
from tests.objects.finished_jobs import CLAIM, EMPTY_DIR, HOST_PATH, NFS, batch, ended, pod_of, training

IMAGES = RuntimeImageSettings("registry.corp/slipway", "1.2.0")
REPOSITORY = "registry.corp/models/digits"
DIGEST = f"sha256:{'a' * 64}"
RESULT = Captured(REPOSITORY, DIGEST, f"sha256:{'b' * 64}")
MODEL: Object = {"spec": {"registry": {"repository": REPOSITORY}}}
DELETED = "2026-01-02T00:00:00Z"


def version(attempts: int = 0) -> Object:
    return {
        "metadata": {"name": "v1", "namespace": "default", "uid": "u1"},
        "spec": {"modelName": "digits", "source": {"job": {"name": "train", "uid": "j1"}}},
        "status": {"attempts": attempts},
    }


def step(
    job: Object,
    pods: list[Object] | None = None,
    *,
    model: Object = MODEL,
    own: Object | None = None,
    own_pods: list[Object] | None = None,
    attempts: int = 0,
) -> CaptureStep:
    """Return the next step for a completed Job, whose Pod is left unless `pods` has others."""
    observed = ObservedCapture(batch(job), [pod_of(job)] if pods is None else pods, own, own_pods or [])
    return capture.next_step(version(attempts), model, observed, IMAGES)


def own_job(condition: str = "", *, attempts: int = 0) -> Object:
    """Return the capture Job that the planner makes, as it runs or has ended."""
    made = step(ended(training(CLAIM)), attempts=attempts)
    assert isinstance(made, CreateCapture)
    made.job["metadata"]["uid"] = "c1"
    return ended(made.job, condition, message="BackoffLimitExceeded") if condition else made.job


def with_result(job: Object, result: Captured = RESULT) -> Object:
    """Return a succeeded Pod that reports a result."""
    return pod_of(job, message=capture.encode(result))


@pytest.mark.parametrize(
    ("setting", "runtimes", "by_pod"),
    [
        ("auto", ["slipway://0.1.0"], False),
        ("auto", ["containerd://2.1.0"], True),
        ("auto", ["slipway://0.1.0", "containerd://2.1.0"], True),
        ("auto", [], True),
        ("local", None, False),
        ("job", None, True),
    ],
)
def test_outputs_are_captured_by_pods_unless_the_only_node_is_this_machine(
    setting: str, runtimes: list[str] | None, *, by_pod: bool
) -> None:
    nodes = {f"n{i}": NodeVersions("linux", "v1", runtime) for i, runtime in enumerate(runtimes or [])}
    versions = None if runtimes is None else ClusterVersions("v1.36.0", nodes)
    assert capture.is_by_pod(setting, versions) is by_pod


def test_outputs_are_captured_by_pods_when_the_nodes_may_not_be_read() -> None:
    assert capture.is_by_pod("auto", ClusterVersions(problem="forbidden"))


@pytest.mark.parametrize("volume", [CLAIM, NFS, HOST_PATH])
def test_a_capture_job_is_created_when_the_volume_outlives_the_pod(volume: Object) -> None:
    created = step(ended(training(volume)))
    assert isinstance(created, CreateCapture)
    assert created == step(ended(training(volume))), "the same Job, whoever makes it"


@pytest.mark.parametrize("volume", [CLAIM, NFS])
def test_the_template_says_where_the_output_is_when_the_pods_are_gone(volume: Object) -> None:
    created = step(ended(training(volume)), [])
    assert isinstance(created, CreateCapture)
    assert "affinity" not in created.job["spec"]["template"]["spec"]


@pytest.mark.parametrize(
    ("job", "reason"),
    [
        (training(HOST_PATH), "OutputGone"),
        (training(EMPTY_DIR), "OutputGone"),
        ({"kind": "Job", "metadata": {"name": "train", "uid": "j1"}}, "OutputGone"),
    ],
)
def test_the_version_fails_when_nobody_knows_where_the_output_is(job: Object, reason: str) -> None:
    failed = step(ended(job), [])
    assert isinstance(failed, FailVersion)
    assert failed.reason == reason


@pytest.mark.parametrize(
    ("volume", "model", "reason", "remedy"),
    [
        (CLAIM, {"spec": {}}, "RegistryMissing", "set spec.registry of Model digits"),
        (EMPTY_DIR, MODEL, "OutputNotCaptured", "manifests/samples/captured-job.yaml"),
        (EMPTY_DIR, MODEL, "OutputNotCaptured", "on a persistentVolumeClaim, nfs or hostPath volume"),
    ],
)
def test_the_version_waits_with_a_remedy_until_the_job_is_deleted(
    volume: Object, model: Object, reason: str, remedy: str
) -> None:
    job = ended(training(volume))
    waiting = step(job, model=model)
    assert isinstance(waiting, WaitForSource)
    assert waiting.reason == reason
    assert remedy in waiting.message
    job["metadata"] = {**job["metadata"], "deletionTimestamp": DELETED}
    failed = step(job, model=model)
    assert isinstance(failed, FailVersion), "the deletion of the Job would wait for ever"
    assert failed.reason == reason


@pytest.mark.parametrize("volume", [EMPTY_DIR, CLAIM])
def test_the_image_is_the_one_that_the_jobs_own_pod_reports(volume: Object) -> None:
    job = ended(training(volume))
    assert step(job, [with_result(job)]) == BuildImage(batch(job), f"{REPOSITORY}@{DIGEST}")


def test_an_image_in_another_repository_than_the_models_is_not_believed() -> None:
    job = ended(training(EMPTY_DIR))
    elsewhere = step(job, [with_result(job, RESULT._replace(repository="registry.corp/theirs"))])
    assert isinstance(elsewhere, WaitForSource)
    assert elsewhere.reason == "OutputElsewhere"
    assert names_in(elsewhere.message, "registry.corp/theirs", REPOSITORY)


def names_in(message: str, *words: str) -> bool:
    return all(word in message for word in words)


@pytest.mark.parametrize(
    "message",
    ["", "done", "[]", "{}", '{"repository": "a", "digest": "sha256:1", "filesDigest": "sha256:2"}', "7"],
)
def test_a_message_that_is_no_result_is_none(message: str) -> None:
    assert capture.decode(message) is None
    assert capture.decode(capture.encode(RESULT)) == RESULT


def test_a_completed_capture_gives_its_image_also_after_failures_of_its_download() -> None:
    job, own = ended(training(CLAIM)), own_job("Complete")
    for attempts in (0, 3):
        image = step(job, own=own, own_pods=[with_result(own)], attempts=attempts)
        assert image == BuildImage(batch(job), f"{REPOSITORY}@{DIGEST}")


def test_a_capture_without_a_result_is_repeated() -> None:
    job, own = ended(training(CLAIM)), own_job("Complete")
    others = with_result(own, RESULT._replace(repository="registry.corp/before"))
    for pods in ([], [pod_of(own)], [others]):
        failed = step(job, own=own, own_pods=pods)
        assert isinstance(failed, CaptureFailed)
        assert (failed.reason, failed.is_final) == ("CaptureLost", False)
        assert step(job, own=own, own_pods=pods, attempts=1) == DiscardCapture(own)


def test_a_running_capture_is_waited_for_with_the_problem_of_its_pod() -> None:
    job, own = ended(training(CLAIM)), own_job()
    assert step(job, own=own) == WaitForCapture(
        "Capturing", "Job capture-v1-u1 captures the output of Job train"
    )
    pod = pod_of(own, "Pending")
    waiting = {"reason": "ErrImagePull", "message": "no such image"}
    pod["status"]["containerStatuses"][0]["state"] = {"waiting": waiting}
    stuck = step(job, own=own, own_pods=[pod])
    assert isinstance(stuck, WaitForCapture)
    assert stuck.reason == "ErrImagePull"
    assert names_in(stuck.message, "capture-v1-u1", "no such image")


def test_a_running_capture_says_why_its_last_pod_has_failed() -> None:
    job, own = ended(training(CLAIM)), own_job()
    failed = pod_of(own, "Failed", exitCode=1, reason="Error", message="DiskFull: no room")
    waiting = step(job, own=own, own_pods=[failed])
    assert isinstance(waiting, WaitForCapture)
    assert waiting.reason == "DiskFull"
    later = with_result(own)
    later["metadata"]["creationTimestamp"] = DELETED
    assert step(job, own=own, own_pods=[failed, later]) == step(job, own=own)


@pytest.mark.parametrize(
    ("end", "reason", "is_final"),
    [
        ({"exitCode": 65, "reason": "Error", "message": "EmptyOutput: no files"}, "EmptyOutput", True),
        ({"exitCode": 65, "reason": "Error", "message": "Unauthorized: no login"}, "Unauthorized", False),
        ({"exitCode": 1, "reason": "Error", "message": "DiskFull: no room"}, "DiskFull", False),
        ({"exitCode": 137, "reason": "OOMKilled"}, "OOMKilled", False),
        ({"exitCode": 1, "reason": "Error", "message": "Traceback"}, "CaptureFailed", False),
    ],
)
def test_a_failed_capture_has_the_reason_of_its_pod_and_is_counted_once(
    end: Any, reason: str, *, is_final: bool
) -> None:
    job, own = ended(training(CLAIM)), own_job("Failed", attempts=2)
    failed = step(job, own=own, own_pods=[pod_of(own, "Failed", **end)], attempts=2)
    assert isinstance(failed, CaptureFailed)
    assert (failed.reason, failed.is_final) == (reason, is_final)
    assert "capture-v1-u1" in failed.message
    assert step(job, own=own, own_pods=[pod_of(own, "Failed", **end)], attempts=3) == DiscardCapture(own)


def test_a_failed_capture_without_pods_has_the_message_of_its_job() -> None:
    failed = step(ended(training(CLAIM)), own=own_job("Failed"))
    assert failed == CaptureFailed("CaptureFailed", "Job capture-v1-u1: BackoffLimitExceeded")


def test_an_evicted_capture_has_the_reason_of_its_node() -> None:
    own = own_job("Failed")
    pod = pod_of(own, "Failed")
    pod["status"] = {"phase": "Failed", "reason": "Evicted", "message": "low on disk"}
    failed = step(ended(training(CLAIM)), own=own, own_pods=[pod])
    assert failed == CaptureFailed("Evicted", "Job capture-v1-u1: low on disk")


def test_a_capture_that_is_being_deleted_is_waited_for() -> None:
    own = own_job("Failed")
    own["metadata"]["deletionTimestamp"] = DELETED
    assert isinstance(step(ended(training(CLAIM)), own=own, attempts=1), WaitForCapture)


def test_a_job_of_somebody_else_with_the_name_is_left_alone() -> None:
    own = own_job("Complete")
    own["metadata"]["ownerReferences"] = []
    taken = step(ended(training(CLAIM)), own=own, own_pods=[with_result(own)])
    assert isinstance(taken, WaitForSource)
    assert taken.reason == "CaptureNameTaken"
    assert capture_job.name(version()) in taken.message

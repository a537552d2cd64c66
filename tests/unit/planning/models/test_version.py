from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.objects import Object
from serving.planning.models import version as planner
from serving.planning.models.version import (
    AdoptVersion,
    BuildImage,
    FailVersion,
    RetryBuild,
    VersionFinished,
    WaitForSource,
)
from serving.resources import conditions, names

NOW = "2026-01-01T00:00:00Z"
MODEL: Object = {"metadata": {"name": "digits", "uid": "m1"}, "spec": {}}
OWNER = {
    "apiVersion": "slipway.dev/v1alpha1",
    "kind": "Model",
    "name": "digits",
    "uid": "m1",
    "controller": True,
    "blockOwnerDeletion": True,
}


def version(phase: str = "", **source: Any) -> Object:
    return {
        "metadata": {
            "name": "v1",
            "namespace": "default",
            "generation": 1,
            "finalizers": [names.MODEL_IMAGE_FINALIZER],
            "ownerReferences": [OWNER],
        },
        "spec": {"modelName": "digits", "source": source or {"path": "/models/digits"}},
        "status": {"phase": phase} if phase else {},
    }


def of_job(uid: str = "", phase: str = "") -> Object:
    return version(phase, job={"name": "train", "uid": uid} if uid else {"name": "train"})


def job(condition: str = "", uid: str = "u1") -> Object:
    job_conditions = [{"type": condition, "status": "True"}] if condition else []
    return {"metadata": {"name": "train", "uid": uid}, "status": {"conditions": job_conditions}}


@pytest.mark.parametrize(
    ("model_version", "source", "step", "reason"),
    [
        (version(), None, BuildImage, ""),
        (of_job(), None, WaitForSource, "JobNotFound"),
        (of_job("u1"), None, FailVersion, "JobGone"),
        (of_job(), job(), WaitForSource, "JobRunning"),
        (of_job("u1"), job(), WaitForSource, "JobRunning"),
        (of_job("u1"), job(uid="u2"), FailVersion, "JobReplaced"),
        (of_job("u1"), job("Complete", uid="u2"), FailVersion, "JobReplaced"),
        (of_job(), job("Failed"), FailVersion, "JobFailed"),
        (of_job(), job("Complete"), BuildImage, ""),
        (of_job("u1"), job("Complete"), BuildImage, ""),
        (of_job(phase="Building"), job("Complete"), BuildImage, ""),
        (of_job(phase="Ready"), None, VersionFinished, ""),
        (of_job("u1", phase="Failed"), job("Complete"), VersionFinished, ""),
    ],
)
def test_next_step_follows_from_the_source(
    model_version: Object, source: Object | None, step: type, reason: str
) -> None:
    next_step = planner.next_step(model_version, source, MODEL)
    assert isinstance(next_step, step)
    assert getattr(next_step, "reason", "") == reason


@given(
    st.sampled_from(["Ready", "Failed"]),
    st.sampled_from(["", "u1", "u2"]),
    st.sampled_from([None, job(), job("Complete"), job("Failed"), job("Complete", uid="u2")]),
)
def test_finished_version_has_no_further_step(phase: str, uid: str, source: Object | None) -> None:
    assert planner.next_step(of_job(uid, phase), source, MODEL) == VersionFinished()
    assert planner.is_finished(of_job(uid, phase))


def test_an_unfinished_version_is_not_finished() -> None:
    assert not planner.is_finished(None)
    assert not planner.is_finished(version())
    assert not planner.is_finished(version("Building"))


@given(st.sampled_from(["Pending", "Building", "Ready", "Failed"]))
def test_ready_is_true_only_in_phase_ready_and_finish_time_only_at_the_end(phase: Any) -> None:
    status = planner.status(version(), phase, ("Why", "words"), NOW)
    condition = conditions.find(status["conditions"], "Ready")
    assert condition is not None
    assert (condition["status"] == "True") == (phase == "Ready")
    assert ("finishTime" in status) == (phase in ("Ready", "Failed"))
    assert status["phase"] == phase


def test_status_lists_the_built_image_and_its_lineage() -> None:
    origin = planner.lineage(of_job("u1"), job("Complete"))
    built = planner.describe(
        image="slipway.local/default/digits@sha256:1",
        digest="sha256:1",
        size=3,
        framework="sklearn",
        metrics={"accuracy": 0.9},
        files=[("model.joblib", "sha256:2", 3)],
        origin=origin,
        source_revision="abc",
    )
    status = planner.status(of_job("u1"), "Ready", ("Built", "image"), NOW, built)
    assert status["lineage"] == {"kind": "Job", "name": "train", "uid": "u1", "sourceRevision": "abc"}
    assert status["files"] == [{"path": "model.joblib", "digest": "sha256:2", "size": 3}]
    assert status["image"].startswith(planner.repository(of_job("u1")) + "@")


@pytest.mark.parametrize(
    ("source", "lineage"),
    [
        ({"path": "/models/digits"}, {"kind": "Path", "path": "/models/digits"}),
        ({"uri": "s3://b/digits"}, {"kind": "URI", "uri": "s3://b/digits"}),
        ({"image": "r.example/digits:v1"}, {"kind": "Image", "image": "r.example/digits:v1"}),
    ],
)
def test_lineage_of_a_source_other_than_a_job_is_the_source_itself(source: Object, lineage: Object) -> None:
    assert planner.lineage(version(**source), None) == lineage


def test_version_gets_finalizer_and_owner_before_its_image_is_built() -> None:
    bare = version() | {"metadata": {"name": "v1", "namespace": "default", "finalizers": ["other/one"]}}
    step = planner.next_step(bare, None, MODEL)
    assert step == AdoptVersion(
        {"finalizers": ["other/one", names.MODEL_IMAGE_FINALIZER], "ownerReferences": [OWNER]}
    )
    bare["metadata"] |= step.metadata  # type: ignore[union-attr]
    assert planner.next_step(bare, None, MODEL) == BuildImage(None)


def test_a_version_keeps_another_controller_as_its_owner() -> None:
    pipeline = {"kind": "Pipeline", "name": "p", "uid": "p1", "controller": True}
    owned_version = version()
    owned_version["metadata"]["ownerReferences"] = [pipeline]
    assert planner.next_step(owned_version, None, MODEL) == BuildImage(None)


def test_model_being_deleted_adopts_no_version() -> None:
    orphan = version()
    orphan["metadata"]["ownerReferences"] = []
    deleted_model = {**MODEL, "metadata": {**MODEL["metadata"], "deletionTimestamp": NOW}}
    assert planner.next_step(orphan, None, deleted_model) == BuildImage(None)


def test_version_waits_until_its_model_exists() -> None:
    assert isinstance(planner.next_step(version(), None, None), WaitForSource)
    assert planner.next_step(version("Ready"), None, None) == VersionFinished()


def failed(attempts: int, requested_delay: float | None = None) -> RetryBuild | FailVersion:
    return planner.after_failure(
        attempts, "Down", "no answer", requested_delay, limit=10, base=2.0, cap=300.0
    )


def test_retry_delay_doubles_up_to_a_bound_and_retries_end() -> None:
    delays = [failed(n) for n in range(1, 10)]
    assert [d.seconds for d in delays if isinstance(d, RetryBuild)] == [2, 4, 8, 16, 32, 64, 128, 256, 300]
    final_step = failed(10)
    assert isinstance(final_step, FailVersion)
    assert (final_step.reason, final_step.message) == ("Down", "no answer; given up after 10 attempts")


@given(st.integers(1, 9), st.floats(0, 1e6))
def test_requested_delay_lengthens_the_retry_delay_up_to_the_bound(
    attempts: int, requested_delay: float
) -> None:
    standard, delayed = failed(attempts), failed(attempts, requested_delay)
    assert isinstance(standard, RetryBuild)
    assert isinstance(delayed, RetryBuild)
    assert standard.seconds <= delayed.seconds <= 300


def test_failed_attempts_are_counted_in_the_status() -> None:
    assert planner.status(version(), "Building", ("Down", "words"), NOW, attempts=3)["attempts"] == 3

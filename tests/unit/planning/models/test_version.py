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
    "apiVersion": "slipway.dev/v1alpha1", "kind": "Model", "name": "digits", "uid": "m1", "controller": True,
    "blockOwnerDeletion": True,
}  # fmt: skip


def version(phase: str = "", **source: Any) -> Object:
    return {
        "metadata": {
            "name": "v1", "namespace": "default", "generation": 1,
            "finalizers": [names.MODEL_IMAGE_FINALIZER], "ownerReferences": [OWNER],
        },
        "spec": {"modelName": "digits", "source": source or {"path": "/models/digits"}},
        "status": {"phase": phase} if phase else {},
    }  # fmt: skip


def of_job(uid: str = "", phase: str = "") -> Object:
    return version(phase, job={"name": "train", "uid": uid} if uid else {"name": "train"})


def job(condition: str = "", uid: str = "u1") -> Object:
    found = [{"type": condition, "status": "True"}] if condition else []
    return {"metadata": {"name": "train", "uid": uid}, "status": {"conditions": found}}


@pytest.mark.parametrize(
    ("found", "source", "step", "reason"),
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
def test_what_is_next_follows_from_the_source(
    found: Object, source: Object | None, step: type, reason: str
) -> None:
    decided = planner.next_step(found, source, MODEL)
    assert isinstance(decided, step)
    assert getattr(decided, "reason", "") == reason


@given(
    st.sampled_from(["Ready", "Failed"]),
    st.sampled_from(["", "u1", "u2"]),
    st.sampled_from([None, job(), job("Complete"), job("Failed"), job("Complete", uid="u2")]),
)
def test_a_finished_version_is_never_touched_again(phase: str, uid: str, source: Object | None) -> None:
    assert planner.next_step(of_job(uid, phase), source, MODEL) == VersionFinished()
    assert planner.is_finished(of_job(uid, phase))


def test_an_unfinished_version_is_not_finished() -> None:
    assert not planner.is_finished(None)
    assert not planner.is_finished(version())
    assert not planner.is_finished(version("Building"))


@given(st.sampled_from(["Pending", "Building", "Ready", "Failed"]))
def test_ready_is_true_in_its_phase_alone_and_only_the_end_has_a_time(phase: Any) -> None:
    status = planner.status(version(), phase, ("Why", "words"), NOW)
    found = conditions.find(status["conditions"], "Ready")
    assert found is not None
    assert (found["status"] == "True") == (phase == "Ready")
    assert ("finishTime" in status) == (phase in ("Ready", "Failed"))
    assert status["phase"] == phase


def test_what_was_built_is_in_the_status_with_where_it_came_from() -> None:
    origin = planner.lineage(of_job("u1"), job("Complete"))
    built = planner.describe(
        image="slipway.local/default/digits@sha256:1", digest="sha256:1", size=3, framework="sklearn",
        metrics={"accuracy": 0.9}, files=[("model.joblib", "sha256:2", 3)], origin=origin, source_revision="abc",
    )  # fmt: skip
    status = planner.status(of_job("u1"), "Ready", ("Built", "image"), NOW, built)
    assert status["lineage"] == {"kind": "Job", "name": "train", "uid": "u1", "sourceRevision": "abc"}
    assert status["files"] == [{"path": "model.joblib", "digest": "sha256:2", "size": 3}]
    assert status["image"].startswith(planner.repository(of_job("u1")) + "@")


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ({"path": "/models/digits"}, {"kind": "Path", "path": "/models/digits"}),
        ({"uri": "s3://b/digits"}, {"kind": "URI", "uri": "s3://b/digits"}),
        ({"image": "r.example/digits:v1"}, {"kind": "Image", "image": "r.example/digits:v1"}),
    ],
)
def test_what_is_no_job_is_its_own_lineage(source: Object, said: Object) -> None:
    assert planner.lineage(version(**source), None) == said


def test_a_version_is_held_and_owned_before_anything_is_made_of_it() -> None:
    bare = version() | {"metadata": {"name": "v1", "namespace": "default", "finalizers": ["other/one"]}}
    step = planner.next_step(bare, None, MODEL)
    assert step == AdoptVersion(
        {"finalizers": ["other/one", names.MODEL_IMAGE_FINALIZER], "ownerReferences": [OWNER]}
    )
    bare["metadata"] |= step.metadata  # type: ignore[union-attr]
    assert planner.next_step(bare, None, MODEL) == BuildImage(None)


def test_a_version_keeps_another_controller_as_its_owner() -> None:
    other = {"kind": "Pipeline", "name": "p", "uid": "p1", "controller": True}
    found = version()
    found["metadata"]["ownerReferences"] = [other]
    assert planner.next_step(found, None, MODEL) == BuildImage(None)


def test_a_model_that_is_going_gets_no_more_versions() -> None:
    found = version()
    found["metadata"]["ownerReferences"] = []
    going = {**MODEL, "metadata": {**MODEL["metadata"], "deletionTimestamp": NOW}}
    assert planner.next_step(found, None, going) == BuildImage(None)


def test_nothing_is_built_before_the_policy_is_known() -> None:
    assert isinstance(planner.next_step(version(), None, None), WaitForSource)
    assert planner.next_step(version("Ready"), None, None) == VersionFinished()


def failed(attempts: int, asked: float | None = None) -> RetryBuild | FailVersion:
    return planner.after_failure(attempts, "Down", "no answer", asked, limit=10, base=2.0, cap=300.0)


def test_tries_are_delayed_twice_as_long_each_time_up_to_a_bound_and_end() -> None:
    delays = [failed(n) for n in range(1, 10)]
    assert [d.seconds for d in delays if isinstance(d, RetryBuild)] == [2, 4, 8, 16, 32, 64, 128, 256, 300]
    last = failed(10)
    assert isinstance(last, FailVersion)
    assert (last.reason, last.message) == ("Down", "no answer; given up after 10 attempts")


@given(st.integers(1, 9), st.floats(0, 1e6))
def test_whoever_refuses_may_ask_for_a_longer_delay_but_not_for_any(attempts: int, asked: float) -> None:
    plain, delayed = failed(attempts), failed(attempts, asked)
    assert isinstance(plain, RetryBuild)
    assert isinstance(delayed, RetryBuild)
    assert plain.seconds <= delayed.seconds <= 300


def test_failed_tries_are_counted_in_the_status() -> None:
    assert planner.status(version(), "Building", ("Down", "words"), NOW, attempts=3)["attempts"] == 3

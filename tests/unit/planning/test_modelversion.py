from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.planning import modelversion as planner
from serving.planning.modelversion import Build, Done, Fail, Wait
from serving.resources import conditions

Object = dict[str, Any]
NOW = "2026-01-01T00:00:00Z"


def version(phase: str = "", **source: Any) -> Object:
    return {
        "metadata": {"name": "v1", "namespace": "default", "generation": 1},
        "spec": {"modelName": "digits", "source": source or {"path": "/models/digits"}},
        "status": {"phase": phase} if phase else {},
    }


def of_job(uid: str = "", phase: str = "") -> Object:
    return version(phase, job={"name": "train", "uid": uid} if uid else {"name": "train"})


def job(condition: str = "", uid: str = "u1") -> Object:
    found = [{"type": condition, "status": "True"}] if condition else []
    return {"metadata": {"name": "train", "uid": uid}, "status": {"conditions": found}}


@pytest.mark.parametrize(
    ("found", "source", "step", "reason"),
    [
        (version(), None, Build, ""),
        (of_job(), None, Wait, "JobNotFound"),
        (of_job("u1"), None, Fail, "JobGone"),
        (of_job(), job(), Wait, "JobRunning"),
        (of_job("u1"), job(), Wait, "JobRunning"),
        (of_job("u1"), job(uid="u2"), Fail, "JobReplaced"),
        (of_job("u1"), job("Complete", uid="u2"), Fail, "JobReplaced"),
        (of_job(), job("Failed"), Fail, "JobFailed"),
        (of_job(), job("Complete"), Build, ""),
        (of_job("u1"), job("Complete"), Build, ""),
        (of_job(phase="Building"), job("Complete"), Build, ""),
        (of_job(phase="Ready"), None, Done, ""),
        (of_job("u1", phase="Failed"), job("Complete"), Done, ""),
    ],
)
def test_what_is_next_follows_from_the_source(
    found: Object, source: Object | None, step: type, reason: str
) -> None:
    decided = planner.next_step(found, source)
    assert isinstance(decided, step)
    assert getattr(decided, "reason", "") == reason


@given(
    st.sampled_from(["Ready", "Failed"]),
    st.sampled_from(["", "u1", "u2"]),
    st.sampled_from([None, job(), job("Complete"), job("Failed"), job("Complete", uid="u2")]),
)
def test_a_finished_version_is_never_touched_again(phase: str, uid: str, source: Object | None) -> None:
    assert planner.next_step(of_job(uid, phase), source) == Done()
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


def test_a_path_is_its_own_lineage() -> None:
    assert planner.lineage(version(), None) == {"kind": "Path", "path": "/models/digits"}

from typing import Any

from serving.planning.models import handoff
from serving.planning.models.handoff import CreateVersion, HoldJob, ReleaseJob
from serving.resources import names

HELD = [names.HANDOFF_FINALIZER]


def job(*, finalizers: list[str] | None = None, condition: str = "", **meta: Any) -> dict[str, Any]:
    annotations = {names.MODEL_ANNOTATION: "digits"} | meta.pop("annotations", {})
    found = [{"type": condition, "status": "True"}] if condition else []
    return {
        "metadata": {
            "name": "train", "namespace": "default", "uid": "abcde-123", "annotations": annotations,
            "finalizers": finalizers or [], **meta,
        },
        "status": {"conditions": found},
    }  # fmt: skip


def version(phase: str, uid: str = "abcde-123") -> dict[str, Any]:
    return {
        "metadata": {"name": "train-abcde"},
        "spec": {"source": {"job": {"name": "train", "uid": uid}}},
        "status": {"phase": phase},
    }


def test_a_job_with_the_annotation_is_held_before_anything_else() -> None:
    assert handoff.next_step(job(), None) == HoldJob()
    assert handoff.next_step(job(condition="Complete"), None) == HoldJob()


def test_other_jobs_are_left_alone() -> None:
    other = job()
    other["metadata"]["annotations"] = {}
    assert handoff.next_step(other, None) is None


def test_a_complete_job_becomes_a_version_named_by_job_and_uid() -> None:
    step = handoff.next_step(job(finalizers=HELD, condition="Complete"), None)
    assert isinstance(step, CreateVersion)
    assert step.version["metadata"]["name"] == "train-abcde"
    assert step.version["spec"]["source"]["job"] == {"name": "train", "uid": "abcde-123"}


def test_the_job_is_held_while_its_version_is_building_even_if_it_is_deleted() -> None:
    done = job(finalizers=HELD, condition="Complete", deletionTimestamp="2026-01-01T00:00:00Z")
    assert handoff.next_step(done, version("Building")) is None
    assert handoff.next_step(done, version("Ready")) == ReleaseJob("train-abcde")
    assert handoff.next_step(done, version("Failed")) == ReleaseJob("train-abcde")


def test_a_failed_job_and_one_deleted_before_its_end_are_released() -> None:
    assert handoff.next_step(job(finalizers=HELD, condition="Failed"), None) == ReleaseJob("")
    gone = job(finalizers=HELD, deletionTimestamp="2026-01-01T00:00:00Z")
    assert handoff.next_step(gone, None) == ReleaseJob("")


def test_a_version_that_was_deleted_later_is_not_built_again() -> None:
    done = job(condition="Complete", annotations={handoff.HANDED_OFF_ANNOTATION: "train-abcde"})
    assert handoff.next_step(done, None) is None


def test_a_name_that_another_jobs_version_has_is_refused() -> None:
    step = handoff.next_step(job(finalizers=HELD, condition="Complete"), version("Ready", uid="other"))
    assert isinstance(step, ReleaseJob)
    assert "not from this Job" in step.warning

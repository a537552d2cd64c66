from typing import Any

from serving.planning.models import handoff
from serving.planning.models.handoff import CreateVersion, HoldJob, ReleaseJob
from serving.resources import names

HELD = [names.HANDOFF_FINALIZER]


def job(*, finalizers: list[str] | None = None, condition: str = "", **meta: Any) -> dict[str, Any]:
    annotations = {names.MODEL_ANNOTATION: "digits"} | meta.pop("annotations", {})
    job_conditions = [{"type": condition, "status": "True"}] if condition else []
    return {
        "metadata": {
            "name": "train",
            "namespace": "default",
            "uid": "abcde-123",
            "annotations": annotations,
            "finalizers": finalizers or [],
            **meta,
        },
        "status": {"conditions": job_conditions},
    }


def version(phase: str, uid: str = "abcde-123") -> dict[str, Any]:
    return {
        "metadata": {"name": "train-abcde"},
        "spec": {"source": {"job": {"name": "train", "uid": uid}}},
        "status": {"phase": phase},
    }


def test_annotated_job_first_gets_the_finalizer() -> None:
    assert handoff.next_step(job(), None) == HoldJob()
    assert handoff.next_step(job(condition="Complete"), None) == HoldJob()


def test_job_without_the_annotation_is_ignored() -> None:
    unannotated = job()
    unannotated["metadata"]["annotations"] = {}
    assert handoff.next_step(unannotated, None) is None


def test_a_complete_job_becomes_a_version_named_by_job_and_uid() -> None:
    step = handoff.next_step(job(finalizers=HELD, condition="Complete"), None)
    assert isinstance(step, CreateVersion)
    assert step.version["metadata"]["name"] == "train-abcde"
    assert step.version["spec"]["source"]["job"] == {"name": "train", "uid": "abcde-123"}


def test_deleted_job_is_held_until_its_version_is_finished() -> None:
    completed = job(finalizers=HELD, condition="Complete", deletionTimestamp="2026-01-01T00:00:00Z")
    assert handoff.next_step(completed, version("Building")) is None
    assert handoff.next_step(completed, version("Ready")) == ReleaseJob("train-abcde")
    assert handoff.next_step(completed, version("Failed")) == ReleaseJob("train-abcde")


def test_job_that_failed_or_was_deleted_early_is_released() -> None:
    assert handoff.next_step(job(finalizers=HELD, condition="Failed"), None) == ReleaseJob("")
    deleted = job(finalizers=HELD, deletionTimestamp="2026-01-01T00:00:00Z")
    assert handoff.next_step(deleted, None) == ReleaseJob("")


def test_deleted_version_is_not_created_again() -> None:
    completed = job(condition="Complete", annotations={handoff.HANDED_OFF_ANNOTATION: "train-abcde"})
    assert handoff.next_step(completed, None) is None


def test_version_name_taken_by_another_job_is_refused() -> None:
    step = handoff.next_step(job(finalizers=HELD, condition="Complete"), version("Ready", uid="other"))
    assert isinstance(step, ReleaseJob)
    assert "not from this Job" in step.warning

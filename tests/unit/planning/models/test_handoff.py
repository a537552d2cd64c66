from typing import Any

import pytest

from serving import job_kinds
from serving.objects import Object
from serving.planning.models import handoff
from serving.planning.models.handoff import CreateVersion, HoldJob, ReleaseJob
from serving.planning.models.job_kind import NOT_LISTED, TrainingJob, UnknownJob
from serving.resources import names
from serving.resources.inference import Predictor

HELD = [names.HANDOFF_FINALIZER]


ROWS = {(row.api_kind.group, row.api_kind.kind): row for row in job_kinds.shipped()}


def job(*, finalizers: list[str] | None = None, condition: str = "", **meta: Any) -> TrainingJob:
    annotations = {names.MODEL_ANNOTATION: "digits"} | meta.pop("annotations", {})
    job_conditions = [{"type": condition, "status": "True"}] if condition else []
    obj: Object = {
        "apiVersion": "batch/v1",
        "kind": "Job",
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
    return TrainingJob(ROWS["batch", "Job"], obj)


def version(phase: str, **source: str) -> Object:
    """Return a ModelVersion of the job, with other values in its source."""
    named = {"name": "train", "uid": "abcde-123", **source}
    return {
        "metadata": {"name": "train-abcde"},
        "spec": {"source": {"job": named}},
        "status": {"phase": phase},
    }


def test_annotated_job_first_gets_the_finalizer() -> None:
    assert handoff.next_step(job(), None) == HoldJob()
    assert handoff.next_step(job(condition="Complete"), None) == HoldJob()


def test_job_without_the_annotation_is_ignored() -> None:
    unannotated = job()
    unannotated.object["metadata"]["annotations"] = {}
    assert handoff.next_step(unannotated, None) is None


def test_a_complete_job_becomes_a_version_named_by_job_and_uid() -> None:
    step = handoff.next_step(job(finalizers=HELD, condition="Complete"), None)
    assert isinstance(step, CreateVersion)
    assert step.version["metadata"]["name"] == "train-abcde"
    named = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "abcde-123"}
    assert step.version["spec"]["source"]["job"] == named


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("train-v1.2", "train-v1-2-abcde"),
        ("a" * 56 + ".b", "a" * 56 + "-abcde"),
        ("t" * 63, "t" * 57 + "-abcde"),
    ],
)
def test_a_version_has_a_name_for_predictors_when_that_of_its_job_has_dots(name: str, expected: str) -> None:
    step = handoff.next_step(job(name=name, finalizers=HELD, condition="Complete"), None)
    assert isinstance(step, CreateVersion)
    assert step.version["metadata"]["name"] == expected
    assert Predictor(name="a", model_version=expected)


def test_a_version_of_an_earlier_release_is_found_by_its_name_with_dots() -> None:
    dotted = job(name="train-v1.2").object
    assert handoff.version_names(dotted) == ("train-v1-2-abcde", "train-v1.2-abcde")
    assert handoff.version_names(job().object) == ("train-abcde",)
    dotted["metadata"]["annotations"][names.MODEL_VERSION_ANNOTATION] = "v1"
    assert handoff.version_names(dotted) == ("v1",)


@pytest.mark.parametrize(
    ("model", "version_name", "value"),
    [
        ("digits", "", ""),
        ("d" * 63, "v1", ""),
        ("d" * 64, "", "d" * 64),
        ("my.model", "", "my.model"),
        ("digits", "v1.2", "v1.2"),
        ("Digits", "", "Digits"),
    ],
)
def test_names_that_no_version_can_have_are_a_problem(model: str, version_name: str, value: str) -> None:
    annotations = {names.MODEL_ANNOTATION: model}
    if version_name:
        annotations[names.MODEL_VERSION_ANNOTATION] = version_name
    problem = handoff.problem(job(annotations=annotations).object)
    assert bool(problem) == bool(value)
    assert repr(value) in problem if value else problem == ""


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


@pytest.mark.parametrize(
    "source",
    [{"uid": "other"}, {"name": "other"}, {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job"}],
)
def test_version_name_taken_by_another_job_is_refused(source: dict[str, str]) -> None:
    step = handoff.next_step(job(finalizers=HELD, condition="Complete"), version("Ready", **source))
    assert isinstance(step, ReleaseJob)
    assert "not from this Job" in step.warning


def test_job_is_released_when_its_version_was_created_by_an_earlier_release() -> None:
    completed = job(finalizers=HELD, condition="Complete")
    for source in ({}, {"apiVersion": "batch/v1", "kind": "Job"}):
        assert handoff.next_step(completed, version("Ready", **source)) == ReleaseJob("train-abcde")


def test_a_job_of_another_kind_becomes_a_version_when_it_has_succeeded() -> None:
    running = job(finalizers=HELD)
    obj = running.object | {"apiVersion": "ray.io/v1", "kind": "RayJob"}
    ray, status = ROWS["ray.io", "RayJob"], {"jobStatus": "SUCCEEDED", "jobDeploymentStatus": "Running"}
    assert handoff.next_step(TrainingJob(ray, obj | {"status": status}), None) is None
    status["jobDeploymentStatus"] = "Complete"
    step = handoff.next_step(TrainingJob(ray, obj | {"status": status}), None)
    assert isinstance(step, CreateVersion)
    named = {"apiVersion": "ray.io/v1", "kind": "RayJob", "name": "train", "uid": "abcde-123"}
    assert step.version["spec"]["source"]["job"] == named


def test_a_job_that_is_part_of_another_one_is_released_and_makes_no_version() -> None:
    assert handoff.next_step(job(), None, is_part=True) is None
    held = job(finalizers=HELD, condition="Complete")
    assert handoff.next_step(held, None, is_part=True) == ReleaseJob("")


def chain(*annotated: bool) -> bool:
    """Whether the first of these jobs, each of which belongs to the next one, is part of another one."""
    jobs = [job(uid=str(n)).object for n in range(len(annotated))]
    for obj, has_annotation in zip(jobs, annotated, strict=True):
        if not has_annotation:
            obj["metadata"]["annotations"] = {}
    above = dict(zip(map(str, range(len(jobs))), jobs[1:], strict=False))
    is_part = handoff.is_part_of_another(
        jobs[0], lambda obj: above.get(obj["metadata"]["uid"]), lambda _: False
    )
    assert is_part is not None
    return is_part


@pytest.mark.parametrize(
    ("annotated", "is_part"),
    [
        ((True,), False),
        ((True, False), False),
        ((True, True), True),
        ((True, False, True), True),
        ((True, False, False), False),
    ],
)
def test_a_job_is_part_of_another_one_when_a_job_above_it_makes_a_version(
    annotated: tuple[bool, ...], *, is_part: bool
) -> None:
    assert chain(*annotated) == is_part


def test_job_in_a_cycle_of_owners_is_not_part_of_another_when_none_has_the_annotation() -> None:
    obj = job().object
    obj["metadata"]["annotations"] = {}
    assert handoff.is_part_of_another(obj, lambda _: obj, lambda _: False) is False


@pytest.mark.parametrize(
    ("reason", "has_version", "is_part"),
    [
        (NOT_LISTED, True, None),
        ("JobKindUnavailable", True, True),
        ("JobKindUnavailable", False, False),
    ],
)
def test_part_of_an_owner_that_cannot_be_read_is_one_when_the_owner_has_made_a_version(
    reason: str, *, has_version: bool, is_part: bool | None
) -> None:
    unknown = UnknownJob(reason, "why")
    assert handoff.is_part_of_another(job().object, lambda _: unknown, lambda _: has_version) is is_part

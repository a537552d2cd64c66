from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving import job_kinds
from serving.images.registry import Reference
from serving.images.registry.push import MODELPACK_SUFFIX
from serving.objects import Object
from serving.planning.models import version as planner
from serving.planning.models.job_kind import TrainingJob, UnknownJob
from serving.planning.models.policy import Examination, ModelPolicy
from serving.planning.models.version import (
    AdoptVersion,
    ApplyPolicies,
    BuildImage,
    ExamineImage,
    FailVersion,
    RetryBuild,
    VersionFinished,
    WaitForSource,
)
from serving.resources import names
from serving.resources.formats import file_list
from serving.resources.kubernetes import conditions
from serving.resources.kubernetes.conditions import StatusReason

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


READY = {
    "type": "Ready",
    "status": "True",
    "reason": "Built",
    "message": "image sha256:1",
    "lastTransitionTime": NOW,
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
        "status": {
            "phase": phase,
            "digest": "sha256:1",
            "contents": {"containsCode": False},
            "conditions": [READY if phase == "Ready" else {**READY, "status": "False"}],
        }
        if phase
        else {},
    }


def of_job(uid: str = "", phase: str = "") -> Object:
    return version(phase, job={"name": "train", "uid": uid} if uid else {"name": "train"})


BATCH_JOB = next(row for row in job_kinds.shipped() if row.api_kind.group == "batch")


def job(condition: str = "", uid: str = "u1") -> TrainingJob:
    job_conditions = [{"type": condition, "status": "True"}] if condition else []
    obj = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "train", "uid": uid}}
    return TrainingJob(BATCH_JOB, obj | {"status": {"conditions": job_conditions}})


@pytest.mark.parametrize(
    ("model_version", "source", "step", "reason"),
    [
        (version(), None, BuildImage, ""),
        (of_job(), None, WaitForSource, "JobNotFound"),
        (of_job("u1"), None, FailVersion, "JobGone"),
        (
            of_job("u1"),
            UnknownJob("JobKindUnavailable", "it is not served"),
            WaitForSource,
            "JobKindUnavailable",
        ),
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
    model_version: Object, source: TrainingJob | UnknownJob | None, step: type, reason: str
) -> None:
    next_step = planner.next_step(model_version, source, MODEL)
    assert isinstance(next_step, step)
    assert getattr(next_step, "reason", "") == reason


@given(
    st.sampled_from(["Ready", "Failed"]),
    st.sampled_from(["", "u1", "u2"]),
    st.sampled_from([None, job(), job("Complete"), job("Failed"), job("Complete", uid="u2")]),
)
def test_finished_version_has_no_further_step(phase: str, uid: str, source: TrainingJob | None) -> None:
    assert planner.next_step(of_job(uid, phase), source, MODEL) == VersionFinished()
    assert planner.is_finished(of_job(uid, phase))


def test_an_unfinished_version_is_not_finished() -> None:
    assert not planner.is_finished(None)
    assert not planner.is_finished(version())
    assert not planner.is_finished(version("Building"))


@given(st.sampled_from(["Pending", "Building", "Ready", "Blocked", "Failed"]))
def test_ready_is_true_only_in_phase_ready_and_finish_time_only_at_the_end(phase: Any) -> None:
    status = planner.status(version(), phase, StatusReason("Why", "words"), NOW)
    condition = conditions.find(status["conditions"], "Ready")
    assert condition is not None
    assert (condition["status"] == "True") == (phase == "Ready")
    assert ("finishTime" in status) == (phase in ("Ready", "Blocked", "Failed"))
    assert status["phase"] == phase


@pytest.mark.parametrize("length", [1, 118, 119, 128, 253])
def test_the_tag_of_an_image_is_the_name_of_its_version_when_a_registry_allows_it(length: int) -> None:
    named = {"metadata": {"name": "v" * length}}
    tag = planner.tag(named)
    assert (tag == "v" * length) == (length <= 118)
    pushed = Reference.parse(f"registry.example/m:{tag}{MODELPACK_SUFFIX}")
    assert pushed.tag.startswith("v" * min(length, 109))


def test_long_names_of_two_versions_have_two_tags() -> None:
    tags = {planner.tag({"metadata": {"name": "v" * 130 + end}}) for end in "ab"}
    assert len(tags) == 2


def test_status_lists_the_built_image_and_its_lineage() -> None:
    origin = planner.lineage(of_job("u1"), job("Complete").object)
    built = planner.describe(
        image="slipway.local/default/digits@sha256:1",
        digest="sha256:1",
        size=3,
        framework="sklearn",
        metrics={"accuracy": 0.9},
        files=[("model.joblib", "sha256:2", 3)],
        origin=origin,
        source_revision="abc",
        examined=planner.examined({"model.joblib": "Pickle"}, {"sha256:4", "sha256:3"}),
    )
    status = planner.status(of_job("u1"), "Ready", StatusReason("Built", "image"), NOW, built)
    named = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "u1"}
    assert status["lineage"] == named | {"sourceRevision": "abc"}
    assert status["files"] == [{"path": "model.joblib", "digest": "sha256:2", "size": 3}]
    assert status["filesDigest"] == file_list.digest([("model.joblib", "sha256:2", 3)])
    assert status["contents"] == {
        "containsCode": True,
        "files": [{"path": "model.joblib", "format": "Pickle"}],
    }
    assert status["signedBy"] == ["sha256:3", "sha256:4"]
    assert planner.image_status({"status": status}) == built
    assert status["image"].startswith(planner.repository(of_job("u1")) + "@")


@pytest.mark.parametrize("recorded", [{}, {"filesDigest": ""}])
def test_digest_of_the_list_follows_from_the_files_when_an_older_release_described_them(
    recorded: Object,
) -> None:
    files = [{"path": path, "digest": f"sha256:{path}", "size": 1} for path in ("b", "a")]
    version = {"status": {"files": files, **recorded}}
    assert planner.files_digest(version) == file_list.digest([("a", "sha256:a", 1), ("b", "sha256:b", 1)])
    assert planner.files_digest({"status": {"files": files, "filesDigest": "sha256:1"}}) == "sha256:1"


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
    stored = planner.status(version(), "Building", StatusReason("Down", "words"), NOW, attempts=3)
    assert stored["attempts"] == 3


NO_CODE = ModelPolicy("Namespace team", frozenset({"noCode"}))
SIGNED = ModelPolicy("Namespace team", frozenset({"signed"}), frozenset({"sha256:k"}))
PICKLE = {"containsCode": True, "files": [{"path": "model.pkl", "format": "Pickle"}]}


def examined(phase: str = "Ready", contents: Object | None = None, *signed_by: str) -> Object:
    """Return a version whose status is what `phase` says without a reason."""
    finished = version(phase)
    finished["status"] |= {"contents": contents or {"containsCode": False}, "signedBy": list(signed_by)}
    return finished


@pytest.mark.parametrize(
    ("model_version", "policies", "examination", "step"),
    [
        (examined(), [], None, VersionFinished),
        (examined(contents=PICKLE), [], None, VersionFinished),
        (examined(), [NO_CODE], None, VersionFinished),
        (examined(contents=PICKLE), [NO_CODE], None, ApplyPolicies),
        (examined("Blocked", PICKLE), [], None, ApplyPolicies),
        (examined("Blocked", PICKLE), [NO_CODE], None, ApplyPolicies),  # another message
        (examined("Failed", PICKLE), [NO_CODE, SIGNED], None, VersionFinished),
        (examined("Ready", None, "sha256:k"), [SIGNED], None, VersionFinished),
        (examined(), [SIGNED], None, ExamineImage),
        (examined(), [SIGNED], Examination(frozenset()), ExamineImage),
        (examined(), [SIGNED], Examination(frozenset({"sha256:k"})), ApplyPolicies),
        (examined(contents=PICKLE), None, None, VersionFinished),
    ],
)
def test_a_finished_version_is_examined_and_judged_when_its_policies_ask_for_it(
    model_version: Object, policies: list[ModelPolicy] | None, examination: Examination | None, step: type
) -> None:
    assert isinstance(planner.next_step(model_version, None, MODEL, policies, examination), step)


@pytest.mark.parametrize("phase", ["Pending", "Building", "Failed"])
def test_version_with_an_image_is_judged_again_when_others_have_changed_its_phase(phase: str) -> None:
    changed = of_job("u1", phase)
    changed["status"]["image"] = "r.example/digits@sha256:1"
    assert planner.next_step(changed, None, MODEL, []) == ApplyPolicies()
    assert planner.next_step(changed, None, MODEL, None) == VersionFinished(), "its Job is gone"


@pytest.mark.parametrize(
    "ready",
    [[], [{**READY, "status": "False"}], [{**READY, "reason": "Mine"}]],
    ids=["removed", "status", "reason"],
)
def test_ready_version_is_judged_again_when_others_have_changed_its_condition(ready: list[Object]) -> None:
    changed = examined()
    changed["status"]["conditions"] = ready
    assert planner.next_step(changed, None, MODEL, []) == ApplyPolicies()


def test_failed_version_fails_again_when_others_have_changed_its_condition() -> None:
    changed = version("Failed")
    changed["status"]["conditions"] = [{**READY, "reason": "JobGone", "message": "it was deleted"}]
    assert planner.next_step(changed, None, MODEL, []) == FailVersion("JobGone", "it was deleted")
    changed["status"]["conditions"] = []
    assert planner.next_step(changed, None, MODEL, []) == FailVersion(
        "Failed", "the reason was removed from the status by another writer"
    )


def test_a_version_without_contents_is_examined_once() -> None:
    old = examined()
    del old["status"]["contents"]
    assert planner.next_step(old, None, MODEL, []) == ExamineImage()
    failed = Examination(frozenset(), "ImageMissing: it was evicted")
    assert planner.next_step(old, None, MODEL, [], failed) == VersionFinished()
    assert planner.judge([NO_CODE], old["status"], failed)[0] == "Blocked"


@given(
    has_code=st.booleans(),
    is_signed=st.booleans(),
    rules=st.sets(st.sampled_from(["noCode", "signed", "other"])),
)
def test_a_judgement_is_stable_once_it_is_reported(
    *, has_code: bool, is_signed: bool, rules: set[str]
) -> None:
    policies = [ModelPolicy("Namespace team", frozenset(rules), frozenset({"sha256:k"}))]
    model_version = examined("Ready", PICKLE if has_code else None, *(["sha256:k"] if is_signed else []))
    examination = Examination(frozenset({"sha256:k"}))
    phase, reason = planner.judge(policies, model_version["status"], examination)
    allowed = (
        "other" not in rules
        and not ("noCode" in rules and has_code)
        and not ("signed" in rules and not is_signed)
    )
    assert phase == ("Ready" if allowed else "Blocked")
    stored = planner.status(model_version, phase, reason, NOW, planner.image_status(model_version))
    model_version["status"] = stored
    assert planner.next_step(model_version, None, MODEL, policies, examination) == VersionFinished()


def test_a_blocked_version_reports_the_reason_and_is_finished_but_not_ready() -> None:
    model_version = examined(contents=PICKLE)
    assert planner.blocked(model_version) == ""
    phase, reason = planner.judge([NO_CODE], model_version["status"])
    model_version["status"] = planner.status(model_version, phase, reason, NOW)
    assert planner.is_finished(model_version)
    assert not planner.is_ready(model_version)
    assert planner.blocked(model_version).startswith(
        "ModelVersion v1 is blocked: model.pkl (Pickle) contains code"
    )

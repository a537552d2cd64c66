"""DELETE: immediate removal, finalizers, grace periods and preconditions."""

import pytest

from serving import errors
from serving.embedded.apiserver.writes import write_path
from serving.resources import kinds
from tests.objects.write_requests import create, inference, pod, request

LATER = "2026-01-02T03:04:35Z"


def test_an_object_without_finalizers_is_deleted_at_once() -> None:
    assert write_path.delete(kinds.INFERENCE, create(kinds.INFERENCE, inference()), {}, request()) is None


@pytest.mark.parametrize(
    ("policy", "finalizer"), [("Foreground", "foregroundDeletion"), ("Orphan", "orphan")]
)
def test_a_propagation_policy_adds_its_finalizer(policy: str, finalizer: str) -> None:
    old = create(kinds.INFERENCE, inference())
    held = write_path.delete(kinds.INFERENCE, old, {"propagationPolicy": policy}, request())
    assert held is not None
    assert held["metadata"]["finalizers"] == [finalizer]
    assert held["metadata"]["deletionTimestamp"] == request().now
    assert held["metadata"]["generation"] == 2
    assert not write_path.is_gone(kinds.INFERENCE, held)
    change = {"metadata": {"finalizers": []}}
    free = write_path.patch(kinds.INFERENCE, held, change, "application/merge-patch+json", request()).object
    assert write_path.is_gone(kinds.INFERENCE, free)
    assert "deletionTimestamp" not in old["metadata"]


def test_no_finalizer_is_added_to_an_object_that_is_being_deleted() -> None:
    held = write_path.delete(
        kinds.INFERENCE, create(kinds.INFERENCE, inference()), {"propagationPolicy": "Orphan"}, request()
    )
    assert held is not None
    change = {"metadata": {"finalizers": ["orphan", "example.com/late"]}}
    with pytest.raises(errors.Invalid, match="no new finalizers"):
        write_path.patch(kinds.INFERENCE, held, change, "application/merge-patch+json", request())


def test_a_running_pod_stays_for_its_grace_period_until_it_is_deleted_with_none() -> None:
    old = create(kinds.POD, pod(nodeName="local"))
    dying = write_path.delete(kinds.POD, old, {}, request())
    assert dying is not None
    assert dying["metadata"]["deletionGracePeriodSeconds"] == 30
    assert dying["metadata"]["deletionTimestamp"] == LATER
    assert not write_path.is_gone(kinds.POD, dying)
    assert write_path.delete(kinds.POD, dying, {}, request()) == dying
    sooner = write_path.delete(kinds.POD, dying, {"gracePeriodSeconds": 2}, request())
    assert sooner is not None
    assert sooner["metadata"]["deletionGracePeriodSeconds"] == 2
    assert write_path.delete(kinds.POD, dying, {"gracePeriodSeconds": 0}, request()) is None


def test_a_running_pod_of_an_older_version_is_deleted_when_its_grace_period_leads_to_no_date() -> None:
    old = create(kinds.POD, pod(nodeName="local"))
    old["spec"]["terminationGracePeriodSeconds"] = 999_999_999_999
    dying = write_path.delete(kinds.POD, old, {}, request())
    assert dying is not None
    assert dying["metadata"]["deletionGracePeriodSeconds"] == 2**31 - 1
    assert dying["metadata"]["deletionTimestamp"].startswith("2094-")


@pytest.mark.parametrize("old", [pod(), {**pod(nodeName="local"), "status": {"phase": "Succeeded"}}])
def test_a_pod_that_does_not_run_is_deleted_at_once(old: dict[str, object]) -> None:
    stored = {**create(kinds.POD, old), "status": old.get("status", {})}
    assert write_path.delete(kinds.POD, stored, {}, request()) is None


@pytest.mark.parametrize("wanted", [{"uid": "other"}, {"resourceVersion": "9"}])
def test_a_failed_precondition_is_a_conflict(wanted: dict[str, str]) -> None:
    with pytest.raises(errors.Conflict, match="Precondition failed"):
        write_path.delete(
            kinds.INFERENCE, create(kinds.INFERENCE, inference()), {"preconditions": wanted}, request()
        )


def test_an_unknown_policy_is_refused() -> None:
    with pytest.raises(errors.ApiError) as caught:
        write_path.delete(kinds.POD, create(kinds.POD, pod()), {"propagationPolicy": "No"}, request())
    assert caught.value.code == 400

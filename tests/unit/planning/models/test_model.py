from hypothesis import given
from hypothesis import strategies as st

from serving.objects import Object
from serving.planning.models import model as planner
from serving.resources.kubernetes import conditions

NOW = "2026-01-01T00:00:00Z"
MODEL: Object = {"metadata": {"name": "digits", "namespace": "default", "generation": 3}}

phases = st.sampled_from(["", "Pending", "Building", "Ready", "Failed"])


def version(name: str, created: int, phase: str) -> Object:
    meta = {"name": name, "creationTimestamp": f"2026-01-01T00:00:{created:02d}Z"}
    return {"metadata": meta, "status": {"phase": phase, "image": f"image-of-{name}"} if phase else {}}


def ready(status: Object) -> tuple[str, str]:
    condition = conditions.find(status["conditions"], "Ready")
    assert condition is not None
    return condition["status"], condition["reason"]


def test_latest_version_is_the_newest_ready_one() -> None:
    versions = [version("v1", 1, "Ready"), version("v2", 2, "Ready"), version("v3", 3, "Building")]
    status = planner.status(MODEL, [*versions, version("v4", 4, "Failed")], NOW)
    assert status["latestVersion"] == {"name": "v2", "image": "image-of-v2"}
    assert (status["versions"], status["observedGeneration"], *ready(status)) == (
        4,
        3,
        "True",
        "VersionReady",
    )


def test_versions_of_the_same_second_are_ordered_by_name() -> None:
    status = planner.status(MODEL, [version("v2", 1, "Ready"), version("v1", 1, "Ready")], NOW)
    assert status["latestVersion"]["name"] == "v2"


def test_there_is_no_latest_version_when_none_is_ready() -> None:
    status = planner.status(MODEL, [version("v1", 1, "Building")], NOW)
    assert "latestVersion" not in status
    assert ready(status) == ("False", "NoReadyVersion")


@given(st.lists(st.tuples(st.integers(0, 5), phases), max_size=6))
def test_status_is_independent_of_order_and_stable_when_recomputed(
    created_phases: list[tuple[int, str]],
) -> None:
    versions = [version(f"v{i}", created, phase) for i, (created, phase) in enumerate(created_phases)]
    status = planner.status(MODEL, versions, NOW)
    assert planner.status(MODEL, reversed(versions), NOW) == status
    assert planner.status(MODEL | {"status": status}, versions, "2030-01-01T00:00:00Z") == status
    newest = max(
        (v for v in versions if v["status"].get("phase") == "Ready"),
        key=lambda v: (v["metadata"]["creationTimestamp"], v["metadata"]["name"]),
        default=None,
    )
    assert status.get("latestVersion", {}).get("name") == (newest and newest["metadata"]["name"])


def test_model_is_missing_only_for_versions_without_an_owner() -> None:
    orphan = version("v1", 1, "Ready")
    owned = version("v2", 1, "Ready")
    owned["metadata"]["ownerReferences"] = [{"kind": "Model", "name": "digits", "uid": "gone"}]
    being_deleted = version("v3", 1, "Ready")
    being_deleted["metadata"]["deletionTimestamp"] = NOW
    assert planner.must_be_created([owned, orphan])
    assert not planner.must_be_created([owned, being_deleted])
    assert not planner.must_be_created([])


def test_a_version_that_is_being_deleted_is_not_the_latest() -> None:
    being_deleted = version("v2", 2, "Ready")
    being_deleted["metadata"]["deletionTimestamp"] = NOW
    status = planner.status(MODEL, [version("v1", 1, "Ready"), being_deleted], NOW)
    assert status["latestVersion"]["name"] == "v1"

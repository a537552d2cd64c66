from hypothesis import given
from hypothesis import strategies as st

from serving.objects import Object
from serving.planning.models import model as planner
from serving.resources import conditions

NOW = "2026-01-01T00:00:00Z"
MODEL: Object = {"metadata": {"name": "digits", "namespace": "default", "generation": 3}}

phases = st.sampled_from(["", "Pending", "Building", "Ready", "Failed"])


def version(name: str, created: int, phase: str) -> Object:
    meta = {"name": name, "creationTimestamp": f"2026-01-01T00:00:{created:02d}Z"}
    return {"metadata": meta, "status": {"phase": phase, "image": f"image-of-{name}"} if phase else {}}


def ready(status: Object) -> tuple[str, str]:
    found = conditions.find(status["conditions"], "Ready")
    assert found is not None
    return found["status"], found["reason"]


def test_the_latest_is_the_newest_that_is_ready_and_never_one_that_builds_or_failed() -> None:
    versions = [version("v1", 1, "Ready"), version("v2", 2, "Ready"), version("v3", 3, "Building")]
    status = planner.status(MODEL, [*versions, version("v4", 4, "Failed")], NOW)
    assert status["latestVersion"] == {"name": "v2", "image": "image-of-v2"}
    assert (status["versions"], status["observedGeneration"], *ready(status)) == (
        4,
        3,
        "True",
        "VersionReady",
    )


def test_versions_of_the_same_second_are_told_apart_by_name() -> None:
    status = planner.status(MODEL, [version("v2", 1, "Ready"), version("v1", 1, "Ready")], NOW)
    assert status["latestVersion"]["name"] == "v2"


def test_without_a_ready_version_there_is_no_latest() -> None:
    status = planner.status(MODEL, [version("v1", 1, "Building")], NOW)
    assert "latestVersion" not in status
    assert ready(status) == ("False", "NoReadyVersion")


@given(st.lists(st.tuples(st.integers(0, 5), phases), max_size=6))
def test_the_status_depends_neither_on_the_order_nor_on_being_computed_again(
    seen: list[tuple[int, str]],
) -> None:
    versions = [version(f"v{i}", created, phase) for i, (created, phase) in enumerate(seen)]
    status = planner.status(MODEL, versions, NOW)
    assert planner.status(MODEL, reversed(versions), NOW) == status
    assert planner.status(MODEL | {"status": status}, versions, "2030-01-01T00:00:00Z") == status
    newest = max((v for v in versions if v["status"].get("phase") == "Ready"),
                 key=lambda v: (v["metadata"]["creationTimestamp"], v["metadata"]["name"]), default=None)  # fmt: skip
    assert status.get("latestVersion", {}).get("name") == (newest and newest["metadata"]["name"])


def test_a_model_is_made_for_versions_that_nobody_owns_only() -> None:
    free = version("v1", 1, "Ready")
    owned = version("v2", 1, "Ready")
    owned["metadata"]["ownerReferences"] = [{"kind": "Model", "name": "digits", "uid": "gone"}]
    going = version("v3", 1, "Ready")
    going["metadata"]["deletionTimestamp"] = NOW
    assert planner.is_missing([owned, free])
    assert not planner.is_missing([owned, going])
    assert not planner.is_missing([])


def test_a_version_that_is_being_deleted_is_not_the_latest() -> None:
    going = version("v2", 2, "Ready")
    going["metadata"]["deletionTimestamp"] = NOW
    status = planner.status(MODEL, [version("v1", 1, "Ready"), going], NOW)
    assert status["latestVersion"]["name"] == "v1"

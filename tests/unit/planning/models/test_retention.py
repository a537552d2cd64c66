import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.objects import Object
from serving.planning.models import retention
from serving.planning.models.retention import KeepImage, ReleaseImage
from serving.planning.models.version import is_ready
from serving.resources import names
from serving.resources.kubernetes import conditions

NOW = "2026-01-01T00:00:00Z"


def version(name: str, created: int = 0, phase: str = "Ready", *, deleting: bool = False) -> Object:
    meta: Object = {"name": name, "creationTimestamp": f"2026-01-01T00:00:{created:02d}Z"}
    if deleting:
        meta["deletionTimestamp"] = NOW
    return {"metadata": meta, "status": {"phase": phase, "digest": f"sha256:{name}"}}


def retired(versions: list[Object], keep: int, used: list[str]) -> list[str]:
    return [v["metadata"]["name"] for v in retention.surplus(versions, keep, used)]


def test_oldest_ready_versions_beyond_the_limit_are_surplus() -> None:
    versions = [
        version("a", 1),
        version("b", 3),
        version("c", 2),
        version("d", 4, "Building"),
        version("e", 0, "Failed"),
    ]
    assert retired(versions, 2, []) == ["a"]
    assert retired(versions, 1, []) == ["a", "c"]


def test_version_in_use_is_kept_in_addition_to_the_newest() -> None:
    assert retired([version("a", 1), version("b", 2), version("c", 3)], 1, ["a"]) == ["b"]


@given(
    st.lists(
        st.tuples(st.integers(0, 9), st.sampled_from(["Ready", "Failed", "Building"]), st.booleans()),
        max_size=8,
    ),
    st.integers(1, 8),
    st.sets(st.integers(0, 7)),
)
def test_surplus_excludes_the_newest_the_used_and_those_not_ready(
    version_fields: list[tuple[int, str, bool]], keep: int, used: set[int]
) -> None:
    versions = [
        version(f"v{i}", created, phase, deleting=deleting)
        for i, (created, phase, deleting) in enumerate(version_fields)
    ]
    surplus = retired(versions, keep, [f"v{i}" for i in used])
    ready = {v["metadata"]["name"] for v in versions if is_ready(v)}
    remaining = ready - set(surplus)
    assert set(surplus) <= ready
    assert not set(surplus) & {f"v{i}" for i in used}
    assert len(remaining) >= min(keep, len(ready))
    order = {
        v["metadata"]["name"]: (v["metadata"]["creationTimestamp"], v["metadata"]["name"]) for v in versions
    }
    newest = sorted(ready, key=lambda name: order[name])[-keep:]
    assert not set(surplus) & set(newest)


@pytest.mark.parametrize(
    ("users", "pinned", "shared", "step"),
    [
        ([], [], [], ReleaseImage("sha256:v")),
        (["Inference digits"], [], [], KeepImage("used by Inference digits")),
        (["Inference digits"], ["pod-1"], ["default/w"], KeepImage("used by Inference digits")),
        ([], ["pod-1"], [], KeepImage("its image is pinned by pod-1")),
        ([], ["pod-1"], ["default/w"], ReleaseImage()),
        ([], [], ["default/w"], ReleaseImage()),
        (["c", "b", "a", "d", "e"], [], [], KeepImage("used by a, b, c and 2 more")),
    ],
)
def test_deletion_keeps_a_used_version_and_a_shared_image(
    users: list[str], pinned: list[str], shared: list[str], step: KeepImage | ReleaseImage
) -> None:
    assert retention.on_deletion(version("v"), users, pinned, shared) == step


def test_deleting_a_version_without_an_image_releases_no_digest() -> None:
    assert retention.on_deletion({"metadata": {"name": "v"}}, [], [], []) == ReleaseImage()


def test_users_of_a_deleted_version_are_reported_in_an_added_condition() -> None:
    deleted_version = version("v") | {"metadata": {"name": "v", "generation": 1}}
    ready = {
        "type": "Ready",
        "status": "True",
        "reason": "Built",
        "message": "image",
        "observedGeneration": 1,
    }
    deleted_version["status"]["conditions"] = [ready | {"lastTransitionTime": "2025-01-01T00:00:00Z"}]
    deleted_version["status"]["observedGeneration"] = 1
    status = retention.kept_status(deleted_version, "used by Inference digits", NOW)
    condition = conditions.find(status["conditions"], retention.RELEASED)
    assert condition is not None
    assert (condition["status"], condition["reason"], condition["message"]) == (
        "False",
        "InUse",
        "used by Inference digits",
    )
    assert status["conditions"][0] == deleted_version["status"]["conditions"][0]
    assert status["digest"] == "sha256:v"
    reported = deleted_version | {"status": status}
    assert retention.is_reported(reported, "used by Inference digits")
    assert not retention.is_reported(reported, "used by Pod p")
    assert retention.kept_status(reported, "used by Inference digits", "2027-01-01T00:00:00Z") == status


def test_used_versions_are_read_from_specs_revisions_and_running_pods() -> None:
    annotated = {"annotations": {names.MODEL_VERSION_ANNOTATION: "v1"}}
    assert retention.versions_of_inference(
        {"spec": {"predictors": [{"modelVersion": "v1"}, {"modelVersion": "v2"}]}}
    ) == {"v1", "v2"}
    assert retention.versions_of_deployment({"spec": {"template": {"metadata": annotated}}}) == {"v1"}
    assert retention.versions_of_deployment({"spec": {}}) == set()
    assert retention.versions_of_pod({"metadata": annotated, "status": {"phase": "Running"}}) == {"v1"}
    assert retention.versions_of_pod({"metadata": annotated, "status": {"phase": "Failed"}}) == set()


@pytest.mark.parametrize(
    ("status", "versions"),
    [
        (None, {"v1"}),
        ({"phase": "Running", "observedGeneration": 2}, {"v1"}),
        ({"phase": "Suspended", "observedGeneration": 2}, {"v1"}),
        ({"phase": "Succeeded", "observedGeneration": 1}, {"v1"}),
        ({"phase": "Succeeded", "observedGeneration": 2}, set()),
        ({"phase": "Failed", "observedGeneration": 2}, set()),
    ],
)
def test_version_is_used_by_an_experiment_until_its_present_spec_is_over(
    status: Object | None, versions: set[str]
) -> None:
    experiment = {
        "metadata": {"name": "e", "generation": 2},
        "spec": {"target": {"modelVersion": "v1"}},
        **({"status": status} if status else {}),
    }
    assert retention.versions_of_experiment(experiment) == versions
    of_inference = {**experiment, "spec": {"target": {"inference": "digits"}}}
    assert retention.versions_of_experiment(of_inference) == set()


@pytest.mark.parametrize(
    ("phase", "versions"), [("", {"v1"}), ("Measuring", {"v1"}), ("Succeeded", set()), ("Failed", set())]
)
def test_version_is_used_by_a_trial_until_it_has_ended(phase: str, versions: set[str]) -> None:
    status = {"phase": phase}
    assert retention.versions_of_trial({"spec": {"modelVersion": "v1"}, "status": status}) == versions
    assert retention.versions_of_trial({"spec": {}, "status": status}) == set()

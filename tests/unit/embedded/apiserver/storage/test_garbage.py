import datetime as dt
from typing import Any

from serving.embedded.apiserver.storage import garbage
from serving.embedded.apiserver.storage.garbage import Delete, RemoveFromStore, Rewrite
from tests.objects.stored_kinds import STORED_KINDS

NOW = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)


def config_map(
    name: str, owners: tuple[str, ...] = (), *, blocks: bool = False, **meta: Any
) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": name, "namespace": "n", "uid": f"uid-{name}", **meta}
    if owners:
        metadata["ownerReferences"] = [
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "name": o,
                "uid": f"uid-{o}",
                "blockOwnerDeletion": blocks,
            }
            for o in owners
        ]
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}


def finds(*objects: dict[str, Any]) -> garbage.FindByUid:
    return {obj["metadata"]["uid"]: obj for obj in objects}.get


def test_an_object_is_deleted_when_its_last_owner_is_gone() -> None:
    child = config_map("c", ("a", "b"))
    assert garbage.steps_for_dependent(STORED_KINDS, child, finds(config_map("a"), config_map("b"))) == []
    steps = garbage.steps_for_dependent(STORED_KINDS, child, finds(config_map("b")))
    assert isinstance(steps[0], Rewrite)
    assert [ref["name"] for ref in steps[0].after["metadata"]["ownerReferences"]] == ["b"]
    assert garbage.steps_for_dependent(STORED_KINDS, child, finds()) == [Delete(child)]


def test_an_owner_recreated_under_its_name_is_not_the_owner() -> None:
    child = config_map("c", ("a",))
    assert garbage.steps_for_dependent(STORED_KINDS, child, finds(config_map("a", uid="another"))) == [
        Delete(child)
    ]


def test_an_owner_in_another_namespace_does_not_count() -> None:
    child = config_map("c", ("a",))
    assert garbage.steps_for_dependent(STORED_KINDS, child, finds(config_map("a", namespace="other"))) == [
        Delete(child)
    ]


def test_an_owner_of_an_unknown_kind_is_assumed_to_exist() -> None:
    child = config_map("c", ("a",))
    child["metadata"]["ownerReferences"][0] |= {"apiVersion": "example.com/v1", "kind": "Unknown"}
    assert garbage.steps_for_dependent(STORED_KINDS, child, finds()) == []


def test_foreground_deletion_waits_for_blocking_dependents() -> None:
    owner = config_map("a", finalizers=["foregroundDeletion"], deletionTimestamp="2026-01-01T00:00:00Z")
    child = config_map("c", ("a",), blocks=True)
    assert garbage.steps_for_owner(owner, [child]) == [Delete(child, "Foreground")]
    deleted = config_map("c", ("a",), blocks=True, deletionTimestamp="2026-01-01T00:00:00Z")
    assert garbage.steps_for_owner(owner, [deleted]) == []
    assert garbage.steps_for_owner(owner, []) == [RemoveFromStore(owner)]


def test_foreground_deletion_releases_a_blocking_dependent_with_another_owner() -> None:
    owner = config_map("a", finalizers=["foregroundDeletion"], deletionTimestamp="2026-01-01T00:00:00Z")
    child = config_map("c", ("a", "b"), blocks=True)
    (step,) = garbage.steps_for_owner(owner, [child])
    assert isinstance(step, Rewrite)
    assert [ref["name"] for ref in step.after["metadata"]["ownerReferences"]] == ["b"]
    assert garbage.steps_for_owner(owner, []) == [RemoveFromStore(owner)]


def test_orphan_deletion_releases_the_dependents_first() -> None:
    owner = config_map("a", finalizers=["orphan", "x.dev/y"], deletionTimestamp="2026-01-01T00:00:00Z")
    (step,) = garbage.steps_for_owner(owner, [config_map("c", ("a",))])
    assert isinstance(step, Rewrite)
    assert "ownerReferences" not in step.after["metadata"]
    (step,) = garbage.steps_for_owner(owner, [])
    assert isinstance(step, Rewrite)
    assert step.after["metadata"]["finalizers"] == ["x.dev/y"]


def test_a_namespace_is_removed_after_its_content() -> None:
    deleted = config_map("n", deletionTimestamp="2026-01-01T00:00:00Z")
    content = config_map("c")
    assert garbage.steps_for_namespace(config_map("n"), [content], []) == []
    assert garbage.steps_for_namespace(deleted, [content], []) == [Delete(content)]
    assert garbage.steps_for_namespace(deleted, [], []) == [RemoveFromStore(deleted)]


def test_a_namespace_is_released_from_the_finalizer_of_a_policy_when_its_content_is_gone() -> None:
    deleted = config_map("n", finalizers=["foregroundDeletion"], deletionTimestamp="2026-01-01T00:00:00Z")
    terminating = config_map("c", deletionTimestamp="2026-01-01T00:00:00Z")
    dependent = config_map("d", ("n",), namespace="other", blocks=True)
    assert garbage.steps_for_namespace(deleted, [terminating], [dependent]) == []
    assert garbage.steps_for_namespace(deleted, [], [dependent]) == [Delete(dependent, "Foreground")]
    assert garbage.steps_for_namespace(deleted, [], []) == [RemoveFromStore(deleted)]


def test_the_time_to_live_of_an_event_starts_with_its_last_occurrence() -> None:
    event = {
        "metadata": {"creationTimestamp": "2026-01-01T10:00:00Z"},
        "lastTimestamp": "2026-01-01T11:30:00Z",
    }
    assert not garbage.expired(event, NOW, 3600)
    assert garbage.expired({**event, "lastTimestamp": None}, NOW, 3600)
    assert not garbage.expired({"metadata": {}, "eventTime": "nonsense"}, NOW, 3600)

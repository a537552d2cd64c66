import datetime as dt
from typing import Any

from serving.embedded.apiserver.storage import garbage
from serving.embedded.apiserver.storage.garbage import Delete, Remove, Rewrite

NOW = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)


def thing(name: str, owners: tuple[str, ...] = (), *, blocks: bool = False, **meta: Any) -> dict[str, Any]:
    found: dict[str, Any] = {"name": name, "namespace": "n", "uid": f"uid-{name}", **meta}
    if owners:
        found["ownerReferences"] = [
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "name": o,
                "uid": f"uid-{o}",
                "blockOwnerDeletion": blocks,
            }
            for o in owners
        ]
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": found}


def alive(*there: dict[str, Any]) -> garbage.Alive:
    return {obj["metadata"]["uid"]: obj for obj in there}.get


def test_an_object_goes_when_its_last_owner_has_gone() -> None:
    child = thing("c", ("a", "b"))
    assert garbage.dependent(child, alive(thing("a"), thing("b"))) == []
    kept = garbage.dependent(child, alive(thing("b")))
    assert isinstance(kept[0], Rewrite)
    assert [ref["name"] for ref in kept[0].after["metadata"]["ownerReferences"]] == ["b"]
    assert garbage.dependent(child, alive()) == [Delete(child)]


def test_an_owner_recreated_under_its_name_is_not_the_owner() -> None:
    child = thing("c", ("a",))
    assert garbage.dependent(child, alive(thing("a", uid="another"))) == [Delete(child)]


def test_an_owner_in_another_namespace_is_none() -> None:
    child = thing("c", ("a",))
    assert garbage.dependent(child, alive(thing("a", namespace="other"))) == [Delete(child)]


def test_an_owner_of_a_kind_that_is_not_served_here_is_believed() -> None:
    child = thing("c", ("a",))
    child["metadata"]["ownerReferences"][0] |= {"apiVersion": "example.com/v1", "kind": "Unknown"}
    assert garbage.dependent(child, alive()) == []


def test_foreground_waits_for_the_dependents_that_block() -> None:
    owner = thing("a", finalizers=["foregroundDeletion"], deletionTimestamp="2026-01-01T00:00:00Z")
    child = thing("c", ("a",), blocks=True)
    assert garbage.owner(owner, [child]) == [Delete(child, "Foreground")]
    going = thing("c", ("a",), blocks=True, deletionTimestamp="2026-01-01T00:00:00Z")
    assert garbage.owner(owner, [going]) == []
    assert garbage.owner(owner, []) == [Remove(owner)]


def test_orphan_frees_the_dependents_first() -> None:
    owner = thing("a", finalizers=["orphan", "x.dev/y"], deletionTimestamp="2026-01-01T00:00:00Z")
    (step,) = garbage.owner(owner, [thing("c", ("a",))])
    assert isinstance(step, Rewrite)
    assert "ownerReferences" not in step.after["metadata"]
    (step,) = garbage.owner(owner, [])
    assert isinstance(step, Rewrite)
    assert step.after["metadata"]["finalizers"] == ["x.dev/y"]


def test_a_namespace_goes_after_its_content() -> None:
    going = thing("n", deletionTimestamp="2026-01-01T00:00:00Z")
    content = thing("c")
    assert garbage.namespace(thing("n"), [content]) == []
    assert garbage.namespace(going, [content]) == [Delete(content)]
    assert garbage.namespace(going, []) == [Remove(going)]


def test_an_event_that_happened_again_starts_over() -> None:
    event = {
        "metadata": {"creationTimestamp": "2026-01-01T10:00:00Z"},
        "lastTimestamp": "2026-01-01T11:30:00Z",
    }
    assert not garbage.expired(event, NOW, 3600)
    assert garbage.expired({**event, "lastTimestamp": None}, NOW, 3600)
    assert not garbage.expired({"metadata": {}, "eventTime": "nonsense"}, NOW, 3600)

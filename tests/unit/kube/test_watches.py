"""Watches of one namespace alone."""

import pytest

from serving import errors
from serving.kube import Watches, polled_object
from serving.kube.connection.client import Listing
from serving.objects import Object
from serving.resources import kinds
from tests.fakes.kube import FakeKube
from tests.rig.control_plane.convergence import running, until


def model(namespace: str) -> Object:
    return {"metadata": {"name": "m", "namespace": namespace}, "spec": {}}


async def test_only_the_watched_namespace_is_listed_and_watched_when_one_is_set() -> None:
    api = FakeKube()
    watches = Watches(api, "team")
    models, leases = watches.of(kinds.MODEL), watches.of(kinds.LEASE, namespace="slipway-system")
    api.add(kinds.MODEL, model("other"))
    api.add(kinds.MODEL, model("team"))
    api.add(kinds.LEASE, {"metadata": {"name": "l", "namespace": "slipway-system"}})
    async with running(watches.run()):
        await until(lambda: not watches.unsynced())
        assert [key.namespace for key in models.items] == ["team"]
        assert len(leases.items) == 1
        api.remove(kinds.MODEL, "team", "m")
        api.add(kinds.MODEL, model("late"))
        api.add(kinds.MODEL, {"metadata": {"name": "n", "namespace": "team"}, "spec": {}})
        await until(lambda: [key.name for key in models.items] == ["n"])


class NoLists(FakeKube):
    """An API that refuses every list, as it does to an account with Roles alone."""

    async def list(self, kind: kinds.Kind, *_: object, **__: object) -> Listing:
        raise errors.Forbidden(403, "Forbidden", f"cannot list {kind.plural}")


async def test_the_watched_namespace_is_read_by_its_name_and_again_when_it_has_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(polled_object, "POLL_SECONDS", 0.01)
    api = NoLists()
    watches = Watches(api, "team")
    namespaces, seen = watches.of(kinds.NAMESPACE), []
    namespaces.on_change(lambda _, after: seen.append(after["metadata"]["annotations"] if after else None))
    api.add(kinds.NAMESPACE, {"metadata": {"name": "team", "annotations": {"a": "b"}}})
    async with running(watches.run()):
        await until(lambda: not watches.unsynced())
        await api.patch(kinds.NAMESPACE, None, "team", {"metadata": {"annotations": {"a": "c"}}})
        await until(lambda: len(seen) > 1)
        await api.delete(kinds.NAMESPACE, None, "team")
        await until(lambda: len(seen) > 2)
    assert seen == [{"a": "b"}, {"a": "c"}, None]

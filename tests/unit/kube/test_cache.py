"""Own writes are visible at once, and their watch events are not reported as changes."""

import contextlib
from collections.abc import AsyncIterator

from serving.kube import Informer
from serving.kube.cache import Cache
from serving.resources import kinds
from tests.fakes.kube import FakeKube
from tests.objects.deployments import deployment
from tests.rig.control_plane.convergence import running, until

OWNER_REFERENCE = {"apiVersion": "v1", "kind": "Pod", "name": "o", "uid": "u", "controller": True}
OWNED = deployment("a")
OWNED["metadata"]["ownerReferences"] = [OWNER_REFERENCE]


async def test_cache_reports_the_changes_of_others_and_not_own_writes() -> None:
    api = FakeKube()
    informer = Informer(api.client("mine"), kinds.DEPLOYMENT)
    cache = Cache(informer)
    news: list[object] = []
    cache.on_news(
        kinds.DEPLOYMENT, lambda _, after: news.append(after["spec"]["replicas"] if after else "gone")
    )
    async with running(informer.run()):
        await informer.synced.wait()
        cache.remember_write(kinds.DEPLOYMENT, api.add(kinds.DEPLOYMENT, OWNED))
        assert list(cache.owned(kinds.DEPLOYMENT, {"metadata": {"uid": "u"}})) == ["a"]
        await until(lambda: informer.get("default", "a") is not None)
        assert news == []
        api.change(kinds.DEPLOYMENT, "default", "a", {"spec": {"replicas": 2}})
        await until(lambda: news == [2])
        cache.remember_write(
            kinds.DEPLOYMENT, api.change(kinds.DEPLOYMENT, "default", "a", {"spec": {"replicas": 3}})
        )
        api.change(kinds.DEPLOYMENT, "default", "a", {"spec": {"replicas": 4}})
        api.remove(kinds.DEPLOYMENT, "default", "a")
        await until(lambda: news[-1:] == ["gone"])
        assert news == [2, 4, "gone"]
        assert cache.get(kinds.DEPLOYMENT, "default", "a") is None


@contextlib.asynccontextmanager
async def followed() -> AsyncIterator[tuple[FakeKube, Informer, Cache]]:
    api = FakeKube()
    informer = Informer(api.client("mine"), kinds.DEPLOYMENT)
    cache = Cache(informer)
    async with running(informer.run()):
        await informer.synced.wait()
        yield api, informer, cache


async def test_write_is_dropped_when_the_watch_already_showed_the_deletion() -> None:
    async with followed() as (api, informer, cache):
        stored = api.add(kinds.DEPLOYMENT, OWNED)
        api.remove(kinds.DEPLOYMENT, "default", "a")
        await until(lambda: informer.has_seen(stored))
        await until(lambda: informer.get("default", "a") is None)
        cache.remember_write(kinds.DEPLOYMENT, stored)  # the answer comes after the events
        assert cache.get(kinds.DEPLOYMENT, "default", "a") is None


async def test_deleted_object_terminates_until_the_watch_shows_it() -> None:
    async with followed() as (api, informer, cache):
        owner = {"metadata": {"uid": "u"}}
        stored = api.add(kinds.DEPLOYMENT, OWNED)
        await until(lambda: informer.get("default", "a") is not None)
        cache.remember_delete(kinds.DEPLOYMENT, stored)
        assert "deletionTimestamp" in cache.owned(kinds.DEPLOYMENT, owner)["a"]["metadata"]
        assert cache.is_behind(kinds.DEPLOYMENT, owner)
        api.remove(kinds.DEPLOYMENT, "default", "a")
        await until(lambda: informer.get("default", "a") is None)
        assert not cache.is_behind(kinds.DEPLOYMENT, owner)
        assert cache.owned(kinds.DEPLOYMENT, owner) == {}


async def test_successor_of_a_deleted_object_does_not_terminate() -> None:
    async with followed() as (api, informer, cache):
        stored = api.add(kinds.DEPLOYMENT, OWNED)
        await until(lambda: informer.get("default", "a") is not None)
        api.remove(kinds.DEPLOYMENT, "default", "a")
        api.add(kinds.DEPLOYMENT, OWNED)
        await until(
            lambda: (informer.get("default", "a") or stored)["metadata"]["uid"] != stored["metadata"]["uid"]
        )
        cache.remember_delete(kinds.DEPLOYMENT, stored)
        assert "deletionTimestamp" not in (cache.get(kinds.DEPLOYMENT, "default", "a") or stored)["metadata"]

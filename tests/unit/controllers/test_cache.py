"""Own writes are seen at once, and their echo is no news."""

import asyncio

from serving.controllers.cache import OWNER, Cache, owner_uids
from serving.kube import Informer
from serving.resources import kinds
from tests.fakes.kube import FakeKube
from tests.rig.convergence import running, until

OWNED = {
    "metadata": {"name": "a", "namespace": "n", "ownerReferences": [{"uid": "u", "controller": True}]},
    "spec": {"replicas": 1},
}


async def test_the_echo_of_an_own_write_is_no_news_and_what_others_change_is() -> None:
    api = FakeKube()
    informer = Informer(api.client("mine"), kinds.DEPLOYMENT)
    informer.index(OWNER, owner_uids)
    cache = Cache(informer)
    news: list[str] = []
    cache.on_news(kinds.DEPLOYMENT, lambda _, after: news.append(after["spec"] if after else "gone"))
    async with running(informer.run()):
        await informer.synced.wait()
        cache.wrote(kinds.DEPLOYMENT, api._create(kinds.DEPLOYMENT, OWNED))
        assert list(cache.owned(kinds.DEPLOYMENT, {"metadata": {"uid": "u"}})) == ["a"]
        await until(lambda: informer.get("n", "a") is not None)
        assert news == []
        api.change(kinds.DEPLOYMENT, "n", "a", {"spec": {"replicas": 2}})
        await until(lambda: news == [{"replicas": 2}])
        cache.wrote(kinds.DEPLOYMENT, api.change(kinds.DEPLOYMENT, "n", "a", {"spec": {"replicas": 3}}))
        api.change(kinds.DEPLOYMENT, "n", "a", {"spec": {"replicas": 4}})
        api.remove(kinds.DEPLOYMENT, "n", "a")
        await until(lambda: news[-1:] == ["gone"])
        assert news == [{"replicas": 2}, {"replicas": 4}, "gone"]
        assert cache.get(kinds.DEPLOYMENT, "n", "a") is None
    await asyncio.sleep(0)

"""Standby Pods become replicas, each once, while the watch lags behind the controller's own writes."""

import pytest

from serving import errors
from serving.embedded.event_queue import EventQueue
from serving.embedded.workloads.deployment.controller import DeploymentController
from serving.embedded.workloads.owned_pods import OwnedPods
from serving.kube import EventRecorder, Informer, Key
from serving.resources import kinds, names
from serving.settings import DEFAULTS
from tests.fakes.kube import FakeKube

READY = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
RUNNING = {"status": {"phase": "Running", "podIP": "127.77.0.2", "conditions": [READY]}}


class Web:
    """A Deployment `web` of one replica, with two standby Pods, and informers that only list."""

    def __init__(self) -> None:
        self.api = FakeKube()
        self.deployments, self.pods = Informer(self.api, kinds.DEPLOYMENT), Informer(self.api, kinds.POD)
        events = EventQueue(EventRecorder(self.api, "test"))
        owned = OwnedPods(self.api, self.pods, events)
        self.controller = DeploymentController(self.api, self.deployments, owned, events, DEFAULTS)
        meta = {"name": "web", "namespace": "default", "annotations": {names.STANDBY_ANNOTATION: "2"}}
        template = {
            "metadata": {"labels": {"app": "a"}},
            "spec": {"containers": [{"name": "c", "image": "i"}]},
        }
        spec = {"replicas": 1, "selector": {"matchLabels": {"app": "a"}}, "template": template}
        self.api.add(kinds.DEPLOYMENT, {"metadata": meta, "spec": spec})

    async def reconcile(self) -> None:
        await self.controller.reconcile(Key("default", "web"))

    async def list_and_reconcile(self) -> None:
        await self.deployments._list()
        await self.pods._list()
        await self.reconcile()

    def show_ready(self, name: str) -> None:
        """Make a Pod ready, and show that to the controller, as the watch does."""
        self.pods._store(Key("default", name), self.api.change(kinds.POD, "default", name, RUNNING))

    def standbys(self) -> list[str]:
        pods = [pod["metadata"] for pod in self.api.find(kinds.POD)]
        return [meta["name"] for meta in pods if names.STANDBY_LABEL in meta["labels"]]


@pytest.fixture
async def web() -> Web:
    """A Deployment that is to have another replica, with two standby Pods that start."""
    web = Web()
    await web.list_and_reconcile()
    [replica] = web.api.find(kinds.POD)
    web.api.change(kinds.POD, "default", replica["metadata"]["name"], RUNNING)
    await web.list_and_reconcile()
    assert len(web.standbys()) == 2
    web.api.change(kinds.DEPLOYMENT, "default", "web", {"spec": {"replicas": 2}})
    await web.deployments._list()
    await web.pods._list()
    return web


async def test_one_standby_is_promoted_when_the_other_is_ready_before_the_promotion_is_seen(web: Web) -> None:
    await web.reconcile()
    [other] = web.standbys()
    web.show_ready(other)
    await web.reconcile()
    assert web.standbys() == [other]


async def test_one_standby_is_promoted_when_the_answer_to_its_promotion_is_lost(web: Web) -> None:
    web.api.fail_next(errors.Unavailable("lost"), done=True)
    with pytest.raises(errors.Unavailable):
        await web.reconcile()
    [other] = web.standbys()
    web.show_ready(other)
    await web.reconcile()
    assert web.standbys() == [other]

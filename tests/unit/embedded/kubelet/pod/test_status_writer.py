import asyncio

from serving.embedded.kubelet.pod.status_writer import StatusWriter
from serving.resources import kinds
from tests.fakes.kube import FakeKube

POD = {
    "metadata": {"name": "a", "namespace": "default"},
    "spec": {"nodeName": "local", "containers": [{"name": "main", "image": "i"}]},
}


async def test_status_is_given_up_when_another_pod_has_the_name() -> None:
    api = FakeKube()
    writer = StatusWriter(api, api.add(kinds.POD, POD))
    api.remove(kinds.POD, "default", "a")
    api.add(kinds.POD, POD)
    writer.set({"phase": "Failed"})
    async with asyncio.timeout(10):
        await writer.run()
    (pod,) = api.find(kinds.POD)
    assert pod["status"]["phase"] == "Pending"

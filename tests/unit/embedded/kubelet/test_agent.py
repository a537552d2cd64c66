"""What the node agent does with the Pods that an earlier one has left."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from serving import errors
from serving.data_dir import DataDir
from serving.embedded.kubelet import agent as agent_module
from serving.embedded.kubelet.agent import Agent
from serving.embedded.kubelet.node import Node
from serving.embedded.kubelet.pod.identities import Identities
from serving.embedded.kubelet.pod.runner import PodRunner
from serving.embedded.kubelet.records import PodDirectory
from serving.embedded.kubelet.resources.cgroups import Cgroups
from serving.embedded.pod_spec.pod_identity import PodIdentity
from serving.kube import Informer
from serving.objects import Object
from serving.resources import kinds
from serving.settings import NodeSettings
from serving.system.isolation.cgroup_layout import CgroupLayout
from tests.fakes.kube import FakeKube
from tests.rig.control_plane.convergence import running, until

DELETION = {"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 0}


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[PodRunner]:
    """The runners that an agent has started; each runs until its Pod has to end."""

    class Runner(PodRunner):
        async def run(self) -> None:
            runners.append(self)
            while not self._must_end():
                self._containers.changed.clear()
                await self._containers.changed.wait()

    runners: list[PodRunner] = []
    monkeypatch.setattr(agent_module, "PodRunner", Runner)
    return runners


def agent(data_dir: DataDir) -> Agent:
    node = SimpleNamespace(data_dir=data_dir, settings=NodeSettings(), kube=FakeKube())
    return Agent(cast("Node", node))


def pod(*, node: str = "local", **meta: object) -> Object:
    return {
        "metadata": {"uid": "u", "name": "p", "namespace": "default", **meta},
        "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}]},
    }


async def test_pod_that_has_ended_is_not_started_again_when_a_finalizer_keeps_it(
    tmp_path: Path, started: list[PodRunner]
) -> None:
    node_agent, created = agent(DataDir(tmp_path)), pod(finalizers=["a/b"])
    deleted = pod(finalizers=["a/b"], **DELETION)
    labelled = pod(finalizers=["a/b"], labels={"a": "b"}, **DELETION)
    node_agent.changed(None, created)
    await until(lambda: len(started) == 1)
    node_agent.changed(created, deleted)
    await until(lambda: not node_agent._runners)
    node_agent.changed(deleted, labelled)
    assert not node_agent._runners
    node_agent.changed(labelled, None)
    assert not node_agent._finished
    await node_agent.close()


async def test_pod_that_an_earlier_agent_has_ended_is_not_started_when_a_finalizer_keeps_it(
    tmp_path: Path, started: list[PodRunner]
) -> None:
    node_agent, deleted = agent(DataDir(tmp_path)), pod(finalizers=["a/b"], **DELETION)
    node_agent.changed(None, deleted)
    await asyncio.sleep(0)
    assert not started
    await node_agent.close()


async def test_pod_is_started_when_its_node_name_is_empty(tmp_path: Path, started: list[PodRunner]) -> None:
    node_agent = agent(DataDir(tmp_path))
    node_agent.changed(None, pod(node=""))
    await until(lambda: bool(started))
    assert [runner.pod["metadata"]["uid"] for runner in started] == ["u"]
    await node_agent.close()


async def test_pod_is_ended_and_deleted_when_it_is_bound_to_an_earlier_name_of_the_node(
    tmp_path: Path,
) -> None:
    data_dir, api = DataDir(tmp_path), FakeKube()
    parts: dict[str, Any] = dict.fromkeys(Node.__dataclass_fields__)
    parts |= {
        "data_dir": data_dir,
        "settings": NodeSettings(name="new"),
        "kube": api,
        "cgroups": Cgroups(CgroupLayout()),
        "identities": Identities("127.77", None),
        "ports": SimpleNamespace(release=lambda *_: None),
        "system_calls": SimpleNamespace(missing=""),
    }
    created = await api.create(kinds.POD, pod(node="local"))
    record = PodDirectory(data_dir.pods / created["metadata"]["uid"])
    record.save({**PodIdentity("127.77.0.1", None).record(), "namespace": "default", "name": "p"})
    node_agent = Agent(Node(**parts))
    node_agent.changed(None, created)
    await until(lambda: not node_agent._runners)
    assert not record.path.exists()
    with pytest.raises(errors.NotFound):
        await api.get(kinds.POD, "default", "p")
    await node_agent.close()


async def test_address_ports_and_socket_of_a_pod_are_free_when_the_api_no_longer_has_it(
    tmp_path: Path,
) -> None:
    async def release_others(_: object) -> None:
        return

    identity = PodIdentity("127.77.0.1", None, 8080)
    data_dir, api, freed = DataDir(tmp_path), FakeKube(), list[PodIdentity]()
    identities = Identities("127.77", None)
    parts: dict[str, Any] = dict.fromkeys(Node.__dataclass_fields__)
    parts |= {
        "data_dir": data_dir,
        "settings": NodeSettings(),
        "cgroups": Cgroups(CgroupLayout()),
        "identities": identities,
        "ports": SimpleNamespace(release=lambda gone, _now: freed.append(gone)),
        "images": SimpleNamespace(release_others=release_others),
    }
    pod = PodDirectory(data_dir.pods / "uid")
    pod.save({**identity.record(), "namespace": "default", "name": "p", "grace": 30})
    identities.occupy(identity)
    data_dir.pod_sockets.mkdir(parents=True)
    socket = data_dir.pod_sockets / str(identity.socket)
    socket.touch()
    informer = Informer(api, kinds.POD)
    async with running(informer.run()):
        await Agent(Node(**parts)).remove_orphans(informer)
    assert freed == [identity]
    assert identity.address not in identities._taken
    assert not socket.exists()
    assert not pod.path.exists()

"""What the node agent does with the Pods that an earlier one has left."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from serving.data_dir import DataDir
from serving.embedded.kubelet.agent import Agent
from serving.embedded.kubelet.node import Node
from serving.embedded.kubelet.pod.identities import Identities
from serving.embedded.kubelet.records import PodDirectory
from serving.embedded.kubelet.resources.cgroups import Cgroups
from serving.embedded.pod_spec.pod_identity import PodIdentity
from serving.kube import Informer
from serving.resources import kinds
from serving.settings import NodeSettings
from serving.system.isolation.cgroup_layout import CgroupLayout
from tests.fakes.kube import FakeKube
from tests.rig.control_plane.convergence import running


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

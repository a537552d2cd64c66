"""Volumes of a container."""

import os
import stat
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from serving.data_dir import DataDir
from serving.embedded.kubelet.container import volumes
from serving.embedded.kubelet.node import Node
from serving.embedded.pod_spec.volume_mounts import Mount
from serving.resources import kinds
from tests.fakes.kube import FakeKube

USER = 1_879_048_192
POD = {"metadata": {"uid": "u1", "namespace": "default"}}
VOLUME = {"name": "scratch", "emptyDir": {}}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to another user")
@pytest.mark.parametrize("is_made", [False, True], ids=["new", "made by an agent that ended then"])
def test_empty_dir_belongs_to_the_user_of_the_pod(tmp_path: Path, *, is_made: bool) -> None:
    data = DataDir(tmp_path)
    if is_made:
        data.pod_volume("u1", "scratch").mkdir(parents=True, mode=0o700)
    node = cast("Node", SimpleNamespace(data_dir=data))
    path = Path(volumes.directory(node, POD, VOLUME, USER))
    assert path == data.pod_volume("u1", "scratch")
    assert (path.stat().st_uid, path.stat().st_gid, stat.S_IMODE(path.stat().st_mode)) == (USER, USER, 0o700)


def node_with_config_map() -> Node:
    kube = FakeKube()
    kube.add(kinds.CONFIG_MAP, {"metadata": {"name": "c", "namespace": "default"}, "data": {"k": "v"}})
    return cast("Node", SimpleNamespace(kube=kube))


async def mounts_of(*paths: str, **source: Any) -> list[Mount]:
    """The mounts of a container that mounts one ConfigMap at these paths."""
    pod = {**POD, "spec": {"volumes": [{"name": "v", "configMap": {"name": "c", **source}}]}}
    container = {"volumeMounts": [{"name": "v", "mountPath": path} for path in paths]}
    made = await volumes.of_container(node_with_config_map(), pod, container, USER)
    return list(made.mounts)


async def test_outer_mount_comes_first_when_the_inner_path_begins_with_two_slashes() -> None:
    assert [mount.target for mount in await mounts_of("//mnt/x", "/mnt")] == ["/mnt", "/mnt/x"]


@pytest.mark.parametrize(
    ("source", "mode"), [({}, 0o400), ({"defaultMode": 0o444}, 0o444), ({"defaultMode": 0}, 0)]
)
async def test_files_have_the_default_mode_of_their_volume_when_it_has_one(
    source: dict[str, Any], mode: int
) -> None:
    (mount,) = await mounts_of("/mnt", **source)
    assert [file.mode for file in mount.files or ()] == [mode]

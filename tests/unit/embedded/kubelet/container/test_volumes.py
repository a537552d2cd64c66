"""Volumes of a container."""

import os
import stat
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from serving.data_dir import DataDir
from serving.embedded.kubelet.container import volumes
from serving.embedded.kubelet.node import Node

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

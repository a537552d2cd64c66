"""The files of zygotes that the pool keeps."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from serving.embedded.kubelet.resources.cgroups import Cgroups
from serving.embedded.kubelet.runtimes import LocalRuntime
from serving.embedded.kubelet.zygote import pool
from serving.embedded.kubelet.zygote.eligibility import ZygoteKey
from serving.system.isolation.cgroup_layout import CgroupLayout


def test_socket_of_a_zygote_that_is_gone_is_removed_when_another_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = ZygoteKey("default", "i")
    socket = tmp_path / f"{pool.name_of(key)}.sock"
    socket.touch()  # as after a restart of the machine

    def spawn(_directory: Path, _name: str, _module: str, _groups: Sequence[str]) -> int:
        assert not socket.exists(), "starts would take the zygote that imports for one that listens"
        return 7

    monkeypatch.setattr(pool, "spawn_zygote", spawn)
    zygotes = pool.ZygotePool(tmp_path, Cgroups(CgroupLayout()), {"i": LocalRuntime(("run",), "m")})
    assert zygotes._start(key) == 7

"""The cgroups of load generators on a machine of any size."""

import os
from pathlib import Path

import pytest

from serving.system.isolation import cgroup_files
from serving.system.isolation.cgroup_layout import CgroupLayout
from tuner.load import cgroups
from tuner.settings import LoadSettings


@pytest.mark.parametrize(("cores", "weight"), [(8, "800"), (192, "10000")])
def test_generators_weigh_at_most_the_kernels_maximum(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cores: int, weight: str
) -> None:
    layout = CgroupLayout(unified=str(tmp_path), unified_controllers=frozenset({"cpu", "memory", "pids"}))
    monkeypatch.setattr(cgroup_files, "machine_layout", lambda: layout)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)))
    cgroups.make(1, LoadSettings())
    assert (tmp_path / cgroups.TOP / "cpu.weight").read_text() == weight

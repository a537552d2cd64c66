"""Cgroups are made and removed, in a directory in place of the kernel's."""

from pathlib import Path

import pytest

from serving.system.isolation import cgroup_files
from serving.system.isolation.cgroup_layout import CgroupLayout


def test_children_get_the_controllers_that_v2_has_when_their_parents_are_made(tmp_path: Path) -> None:
    layout = CgroupLayout(str(tmp_path), unified_controllers=frozenset({"memory", "pids"}))
    cgroup_files.make_parents(layout, str(tmp_path), ("", "top"), ("cpu", "pids"))
    for parent in (tmp_path, tmp_path / "top"):
        assert (parent / "cgroup.subtree_control").read_text() == "+pids"


def test_nothing_is_enabled_when_the_hierarchy_is_of_v1(tmp_path: Path) -> None:
    cgroup_files.make_parents(CgroupLayout(cpu_v1=str(tmp_path)), str(tmp_path), ("top",))
    assert list((tmp_path / "top").iterdir()) == []


def test_cgroup_that_stays_in_use_is_given_up_when_the_limit_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cgroup_files, "REMOVE_SECONDS", 0.03)
    (tmp_path / "used" / "file").mkdir(parents=True)
    (tmp_path / "empty").mkdir()
    cgroup_files.remove_all([tmp_path / "used", tmp_path / "empty"])
    assert [path.name for path in tmp_path.iterdir()] == ["used"]

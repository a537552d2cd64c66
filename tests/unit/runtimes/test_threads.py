"""Thread counts of numeric libraries follow the cgroup's CPU limit."""

import os
from pathlib import Path

import pytest

from serving.runtimes import threads


def v2(root: Path, path: str, text: str) -> None:
    (root / path).mkdir(parents=True, exist_ok=True)
    (root / path / "cpu.max").write_text(text)


def cgroup(tmp_path: Path, text: str) -> Path:
    (tmp_path / "cgroup").write_text(text)
    return tmp_path / "cgroup"


def test_the_tightest_limit_of_the_cgroups_applies(tmp_path: Path) -> None:
    v2(tmp_path / "fs", "a", "400000 100000")
    v2(tmp_path / "fs", "a/b", "250000 100000")
    v2(tmp_path / "fs", "a/b/c", "max 100000")
    assert threads.cpu_limit(tmp_path / "fs", cgroup(tmp_path, "0::/a/b/c\n")) == 2.5


def test_limit_is_none_without_a_limit(tmp_path: Path) -> None:
    v2(tmp_path / "fs", "a", "max 100000")
    assert threads.cpu_limit(tmp_path / "fs", cgroup(tmp_path, "0::/a\n")) is None
    assert threads.cpu_limit(tmp_path / "fs", tmp_path / "absent") is None


def test_limits_of_cgroup_v1_are_read(tmp_path: Path) -> None:
    directory = tmp_path / "fs" / "cpu" / "pod"
    directory.mkdir(parents=True)
    (directory / "cpu.cfs_quota_us").write_text("150000\n")
    (directory / "cpu.cfs_period_us").write_text("100000\n")
    lines = "5:memory:/pod\n4:cpu,cpuacct:/pod\n"
    assert threads.cpu_limit(tmp_path / "fs", cgroup(tmp_path, lines)) == 1.5


@pytest.mark.parametrize(
    ("limit", "count"), [("max 100000", "1"), ("50000 100000", "1"), ("300000 100000", "3")]
)
def test_one_thread_is_used_unless_the_limit_is_higher(
    limit: str, count: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in threads.VARIABLES:
        monkeypatch.setenv(name, "unset")
        monkeypatch.delenv(name)
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    v2(tmp_path / "fs", "a", limit)
    threads.limit_threads(tmp_path / "fs", cgroup(tmp_path, "0::/a\n"))
    assert os.environ["OPENBLAS_NUM_THREADS"] == count
    assert os.environ["OMP_NUM_THREADS"] == "7"
    for name in threads.VARIABLES[1:]:
        monkeypatch.delenv(name)

"""The limits of a process are read from its cgroups."""

from pathlib import Path

from serving.runtimes import cgroups


def v2(root: Path, path: str, text: str) -> None:
    (root / path).mkdir(parents=True, exist_ok=True)
    (root / path / "cpu.max").write_text(text)


def cgroup(tmp_path: Path, text: str) -> Path:
    (tmp_path / "cgroup").write_text(text)
    return tmp_path / "cgroup"


def test_the_tightest_cpu_limit_applies_of_nested_cgroups(tmp_path: Path) -> None:
    v2(tmp_path / "fs", "a", "400000 100000")
    v2(tmp_path / "fs", "a/b", "250000 100000")
    v2(tmp_path / "fs", "a/b/c", "max 100000")
    assert cgroups.cpu_limit(tmp_path / "fs", cgroup(tmp_path, "0::/a/b/c\n")) == 2.5


def test_cpu_limit_is_none_without_a_limit(tmp_path: Path) -> None:
    v2(tmp_path / "fs", "a", "max 100000")
    assert cgroups.cpu_limit(tmp_path / "fs", cgroup(tmp_path, "0::/a\n")) is None
    assert cgroups.cpu_limit(tmp_path / "fs", tmp_path / "absent") is None


def test_cpu_limits_of_cgroup_v1_are_read(tmp_path: Path) -> None:
    directory = tmp_path / "fs" / "cpu" / "pod"
    directory.mkdir(parents=True)
    (directory / "cpu.cfs_quota_us").write_text("150000\n")
    (directory / "cpu.cfs_period_us").write_text("100000\n")
    lines = "5:memory:/pod\n4:cpu,cpuacct:/pod\n"
    assert cgroups.cpu_limit(tmp_path / "fs", cgroup(tmp_path, lines)) == 1.5


def test_the_tightest_memory_limit_applies_of_both_versions(tmp_path: Path) -> None:
    one, other = tmp_path / "fs" / "a", tmp_path / "fs" / "memory" / "pod"
    (one / "b").mkdir(parents=True)
    (one / "b" / "memory.max").write_text("max\n")
    (one / "memory.max").write_text("700\n")
    other.mkdir(parents=True)
    (other / "memory.limit_in_bytes").write_text("600\n")
    (other.parent / "memory.limit_in_bytes").write_text("9223372036854771712\n")
    lines = cgroup(tmp_path, "5:memory:/pod\n0::/a/b\n")
    assert cgroups.memory_limit(tmp_path / "fs", lines) == 600
    assert cgroups.memory_limit(tmp_path / "fs", cgroup(tmp_path, "0::/a/b\n")) == 700


def test_memory_limit_is_none_where_v1_writes_its_largest_number(tmp_path: Path) -> None:
    root = tmp_path / "fs" / "memory"
    root.mkdir(parents=True)
    (root / "memory.limit_in_bytes").write_text("9223372036854771712\n")
    assert cgroups.memory_limit(tmp_path / "fs", cgroup(tmp_path, "5:memory:/\n")) is None

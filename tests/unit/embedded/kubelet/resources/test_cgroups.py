import errno
import os
from decimal import Decimal
from pathlib import Path

import pytest

from serving.embedded.kubelet.resources.cgroup_limits import not_enforced
from serving.embedded.kubelet.resources.cgroups import SPARES, TOP, Cgroups, detect
from serving.embedded.pod_spec.resource_limits import ContainerLimits
from serving.system.isolation import cgroup_files
from serving.system.isolation.cgroup_layout import CgroupLayout


def test_processes_of_all_containers_are_limited_together_except_of_forked_ones(tmp_path: Path) -> None:
    cgroups = Cgroups(CgroupLayout(pids_v1=str(tmp_path)), pids_limit=7)
    for container in ("first", "second"):
        cgroups.create("uid", container, ContainerLimits())
    assert (tmp_path / TOP / "uid" / "pids.max").read_text() == "7"
    spare = tmp_path / TOP / SPARES / "12"
    spare.mkdir(parents=True)
    limited = cgroups.limit_spare([str(spare)], ContainerLimits())
    assert (spare / "pids.max").read_text() == "7"
    assert limited.not_limited == {}


def test_container_has_cgroups_when_its_name_is_that_of_a_file_of_the_kernel(tmp_path: Path) -> None:
    cgroups = Cgroups(CgroupLayout(cpu_v1=str(tmp_path)))
    (tmp_path / TOP / "uid").mkdir(parents=True)
    (tmp_path / TOP / "uid" / "tasks").touch()  # every directory of v1 has it
    created = cgroups.create("uid", "tasks", ContainerLimits(cpu=Decimal(1)))
    (group,) = created.paths
    assert Path(group, "cpu.cfs_quota_us").read_text() == "100000"
    assert created.not_limited == {}
    assert cgroups.paths("uid", "tasks") == [group]
    for file in Path(group).iterdir():
        file.unlink()  # the kernel removes its files with the directory
    cgroups.remove("uid", "tasks")
    assert cgroups.paths("uid", "tasks") == []


@pytest.mark.parametrize(
    ("version", "remedy"),
    [
        (1, "as root, or let root give it cgroups (docs/security.md)"),
        (2, "as root"),
    ],
)
def test_limits_that_an_ordinary_user_cannot_enforce_have_a_remedy(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: int, remedy: str
) -> None:
    root = str(tmp_path)
    layouts = {1: CgroupLayout(cpu_v1=root), 2: CgroupLayout(root, unified_controllers=frozenset({"cpu"}))}
    monkeypatch.setattr(cgroup_files, "machine_layout", lambda: layouts[version])
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(os, "access", lambda *_: False)
    cgroups, limits = detect(), ContainerLimits(cpu=Decimal(1))
    message = not_enforced([limits], {"cpu": cgroups.missing["cpu"]})
    assert message == f"cpu: this user may not make cgroups: run `slipway up` {remedy}"


def test_reason_of_the_nodes_start_stays_when_a_limit_cannot_be_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    root = tmp_path / "none"
    monkeypatch.setattr(cgroup_files, "machine_layout", lambda: CgroupLayout(cpu_v1=str(root)))
    cgroups = detect()
    assert cgroups.create("uid", "main", ContainerLimits(cpu=Decimal(1))).not_limited == {}
    assert cgroups.missing["cpu"] == f"{root}: No such file or directory"


def test_failed_limit_is_that_of_its_container_alone(tmp_path: Path) -> None:
    cgroups, limits = Cgroups(CgroupLayout(cpu_v1=str(tmp_path))), ContainerLimits(cpu=Decimal(1))
    (tmp_path / TOP / "uid" / "failing" / "cpu.cfs_quota_us").mkdir(parents=True)
    failing = cgroups.create("uid", "failing", limits)
    assert failing.not_limited == {"cpu": "cpu.cfs_quota_us: Is a directory"}
    assert cgroups.create("uid", "other", limits).not_limited == {}
    assert cgroups.missing == {}


def test_spare_process_is_refused_when_it_has_removed_its_cgroups(tmp_path: Path) -> None:
    cgroups = Cgroups(CgroupLayout(memory_v1=str(tmp_path)))
    with pytest.raises(OSError, match=r"memory\.limit_in_bytes: No such file or directory"):
        cgroups.limit_spare([f"{tmp_path}/{TOP}/{SPARES}/12"], ContainerLimits(memory=1 << 30))
    assert cgroups.missing == {}


def test_spare_process_is_refused_when_it_uses_more_than_its_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def busy(*_: object) -> None:
        raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))

    spare = tmp_path / TOP / SPARES / "12"
    spare.mkdir(parents=True)
    monkeypatch.setattr(Path, "write_text", busy)
    with pytest.raises(OSError, match=r"memory\.limit_in_bytes: Device or resource busy"):
        Cgroups(CgroupLayout(memory_v1=str(tmp_path))).limit_spare(
            [str(spare)], ContainerLimits(memory=1 << 30)
        )


def test_spare_process_is_taken_when_a_new_one_would_not_be_limited_either(tmp_path: Path) -> None:
    spare = tmp_path / TOP / SPARES / "12"
    (spare / "cpu.cfs_quota_us").mkdir(parents=True)  # cannot be written
    cgroups = Cgroups(CgroupLayout(cpu_v1=str(tmp_path)))
    limited = cgroups.limit_spare([str(spare)], ContainerLimits(cpu=Decimal(1)))
    assert limited.not_limited == {"cpu": "cpu.cfs_quota_us: Is a directory"}


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_limit_of_an_ordinary_user_is_not_enforced_for_the_reason_of_its_start() -> None:
    detect(pids_limit=1)  # the directory of all Pods exists, and is root's
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setresuid(65_534, 65_534, 65_534)
            cgroups, limits = detect(pids_limit=1), ContainerLimits(Decimal(1), 1 << 30)
            created = cgroups.create("uid", "main", limits)
            os.write(writer, not_enforced([limits], {**created.not_limited, **cgroups.missing}).encode())
        finally:
            os._exit(0)
    os.close(writer)
    os.waitpid(pid, 0)
    with os.fdopen(reader) as answer:
        message = answer.read()
    assert "run `slipway up` as root" in message or "no cgroup controller" in message
    assert "No such file" not in message

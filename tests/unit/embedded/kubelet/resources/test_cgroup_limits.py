from decimal import Decimal

import pytest

from serving.embedded.kubelet.resources.cgroup_limits import (
    limit_writes,
    not_enforced,
    oom_file,
    without_inherited,
)
from serving.embedded.pod_spec.resource_limits import ContainerLimits, limits
from serving.system.isolation.cgroup_layout import cpu_weight_writes, layout, process_limit_writes

V1 = "cgroup /cg/memory cgroup rw,memory 0 0\ncgroup /cg/cpu cgroup rw,cpu,cpuacct 0 0\n"
V2 = "cgroup2 /cg cgroup2 rw 0 0\n"
HYBRID = V1 + "cgroup2 /cg/unified cgroup2 rw 0 0\n"
REQUESTED = limits({"resources": {"limits": {"cpu": "500m", "memory": "64Mi", "ephemeral-storage": "1"}}})


def test_limits_are_written_in_v1():
    written = dict(limit_writes(layout(V1, ""), "g", REQUESTED))
    assert written["/cg/cpu/g/cpu.cfs_quota_us"] == "50000"
    assert written["/cg/memory/g/memory.limit_in_bytes"] == str(64 << 20)


def test_limits_are_written_in_v2():
    cgroups = layout(V2, "cpu io memory pids")
    assert dict(limit_writes(cgroups, "g", REQUESTED))["/cg/g/cpu.max"] == "50000 100000"
    assert oom_file(cgroups, "g") == "/cg/g/memory.events"


def test_hybrid_tracks_in_the_unified_hierarchy_and_limits_in_v1():
    cgroups = layout(HYBRID, "hugetlb")
    assert cgroups.roots == ("/cg/unified", "/cg/memory", "/cg/cpu")
    assert cgroups.root_of("memory") == "/cg/memory"
    assert oom_file(cgroups, "g") == "/cg/memory/g/memory.oom_control"


def test_number_of_processes_is_written_in_v1_and_v2():
    v1 = layout(V1 + "cgroup /cg/pids cgroup rw,pids 0 0\n", "")
    assert v1.roots == ("/cg/memory", "/cg/cpu", "/cg/pids")
    assert process_limit_writes(v1, "g", 4096) == [("/cg/pids/g/pids.max", "4096")]
    assert process_limit_writes(layout(V2, "cpu io memory pids"), "g", 4096) == [("/cg/g/pids.max", "4096")]
    assert process_limit_writes(v1, "g", 0) == []
    assert process_limit_writes(layout(V1, ""), "g", 4096) == []


def test_controller_of_processes_beside_another_is_joined_once():
    together = layout("cgroup /cg/both cgroup rw,cpu,pids 0 0\n", "")
    assert together.roots == ("/cg/both",)
    assert together.root_of("pids") == "/cg/both"


@pytest.mark.parametrize("processes", [1, 4, 512])
def test_a_group_of_pods_weighs_as_so_many_busy_processes(processes):
    assert cpu_weight_writes(layout(V1, ""), "g", processes) == [
        ("/cg/cpu/g/cpu.shares", str(1024 * processes))
    ]
    v2 = layout(V2, "cpu io memory pids")
    assert cpu_weight_writes(v2, "g", processes) == [("/cg/g/cpu.weight", str(min(100 * processes, 10_000)))]
    assert cpu_weight_writes(layout("", ""), "g", processes) == []


def test_unenforced_limits_are_named_only_when_requested():
    missing = {"cpu": "needs root", "memory": "no controller"}
    assert not_enforced([REQUESTED], missing) == (
        "cpu: needs root; memory: no controller; ephemeral-storage: no such limit on one machine"
    )
    assert not_enforced([limits({})], missing) == ""


def test_missing_process_limit_is_named_without_a_request():
    assert not_enforced([limits({})], {"cpu": "needs root", "pids": "needs root"}) == "pids: needs root"


def test_resources_that_are_missing_for_one_reason_are_named_together():
    missing = {"cpu": "needs root", "memory": "needs root", "pids": "no controller"}
    assert not_enforced([limits({"resources": {"limits": {"cpu": 1, "memory": 1}}})], missing) == (
        "cpu, memory: needs root; pids: no controller"
    )


def test_controller_that_is_not_mounted_has_no_root():
    assert layout("", "").root_of("cpu") is None


def test_limit_of_a_forked_container_is_reduced_by_its_inherited_pages():
    limit = ContainerLimits(memory=512 << 20, cpu=Decimal(2))
    assert without_inherited(limit, 120 << 20) == ContainerLimits(memory=392 << 20, cpu=Decimal(2))
    assert without_inherited(ContainerLimits(cpu=Decimal(2)), 120 << 20) == ContainerLimits(cpu=Decimal(2))


@pytest.mark.parametrize("inherited", [64 << 20, 65 << 20])
def test_limit_below_the_inherited_pages_is_refused(inherited):
    with pytest.raises(ValueError, match=f"memory limit {64 << 20} is not above the {inherited} bytes"):
        without_inherited(ContainerLimits(memory=64 << 20), inherited)

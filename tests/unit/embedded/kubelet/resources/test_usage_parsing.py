"""Usage of containers from the texts of cgroups and of /proc."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.embedded.kubelet.resources import usage_parsing
from serving.embedded.kubelet.resources.usage_parsing import (
    CgroupPaths,
    Cpu,
    Memory,
    Process,
    Resident,
    Rollup,
)
from serving.system.isolation.cgroup_layout import CgroupLayout

HYBRID = CgroupLayout("/cg/unified", "/cg/memory", "/cg/cpu")
PURE = CgroupLayout("/cg", unified_controllers=frozenset({"cpu", "memory"}))
STATUS = """\
Name:	python
VmHWM:	  200 kB
VmRSS:	  150 kB
RssAnon:	   90 kB
RssFile:	   40 kB
RssShmem:	   20 kB
Threads:	3
"""


def test_cgroup_paths_are_those_of_the_container_in_each_hierarchy() -> None:
    text = (
        "9:name=systemd:/\n4:memory:/slipway/u/main\n2:cpuacct:/\n1:cpu:/slipway/u/main\n0::/slipway/u/main\n"
    )
    expected = CgroupPaths(
        "/cg/unified/slipway/u/main", "/cg/memory/slipway/u/main", "/cg/cpu/slipway/u/main"
    )
    assert usage_parsing.cgroup_paths(text, HYBRID, "slipway") == expected


def test_cgroup_paths_are_below_the_mount_inside_a_container() -> None:
    text = "0::/docker/abc/slipway/spares/77\n"
    assert usage_parsing.cgroup_paths(text, PURE, "slipway") == CgroupPaths(unified="/cg/slipway/spares/77")


def test_cgroup_paths_are_none_without_own_cgroups() -> None:
    assert (
        usage_parsing.cgroup_paths("4:memory:/user/1000\n0::/user/1000\n", HYBRID, "slipway") == CgroupPaths()
    )


@pytest.mark.parametrize(
    "text",
    [
        "nr_periods 40\nnr_throttled 10\nthrottled_time 1500000000\n",
        "usage_usec 7\nnr_periods 40\nnr_throttled 10\nthrottled_usec 1500000\n",
    ],
)
def test_throttling_is_parsed_alike_for_both_cgroup_versions(text: str) -> None:
    assert usage_parsing.throttling(text) == Cpu(40, 10, 1.5)


def test_working_set_excludes_inactive_file_pages() -> None:
    assert usage_parsing.charged("1000\n", "anon 300\ninactive_file 400\n") == Memory(600, 300)
    v1 = "rss 1\ninactive_file 2\ntotal_rss 300\ntotal_inactive_file 400\n"
    assert usage_parsing.charged("1000\n", v1) == Memory(600, 300)
    assert usage_parsing.charged("100\n", "inactive_file 400\n").working_set == 0


def test_process_time_is_parsed_after_a_name_with_brackets() -> None:
    fields = " ".join(["S", "7", *["0"] * 9, "11", "22", "3", "4", *["0"] * 30])
    assert usage_parsing.process(9, f"9 (a) b) {fields}") == Process(9, 7, 33, 7)


def test_ticks_include_reaped_children() -> None:
    known = {
        p.pid: p
        for p in (Process(1, 0, 99, 5), Process(2, 1, 10, 1), Process(3, 2, 20, 2), Process(4, 0, 50, 0))
    }
    members = usage_parsing.below(1, usage_parsing.tree(known))
    assert sorted(members) == [2, 3]
    assert usage_parsing.ticks(1, members, known) == 5 + 11 + 22


def test_resident_memory_includes_files_and_has_a_peak() -> None:
    assert usage_parsing.resident(STATUS) == Resident(150 * 1024, 110 * 1024, 200 * 1024)
    assert usage_parsing.resident("Name:\tkthreadd\n") == Resident()


@pytest.mark.parametrize("name", ["foo kB", "kB", "VmRSS: 9 kB", "a\x1cVmRSS: kB"])
def test_resident_memory_is_parsed_when_the_name_of_the_process_is_like_a_size(name: str) -> None:
    assert usage_parsing.resident(STATUS.replace("python", name)) == usage_parsing.resident(STATUS)


def test_rollup_separates_private_from_shared() -> None:
    text = (
        "5581 ---p 00000000 00:00 0 [rollup]\nRss: 10 kB\nShared_Clean: 3 kB\nShared_Dirty: 1 kB\n"
        "Private_Clean: 2 kB\nPrivate_Dirty: 4 kB\n"
    )
    assert usage_parsing.rollup(text) == Rollup(6 * 1024, 4 * 1024)


def test_pages_that_several_processes_share_count_once() -> None:
    workers = [Resident(100, 80, 120)] * 3
    memory = usage_parsing.together(workers, [Rollup(10, 90)] * 3)
    assert memory.total == 3 * 10 + 90
    assert memory.peak == 120


@given(st.lists(st.tuples(st.integers(0, 10**9), st.integers(0, 10**9)), min_size=1, max_size=8))
def test_memory_is_between_the_largest_process_and_the_sum(parts: list[tuple[int, int]]) -> None:
    rollups = [Rollup(private, shared) for private, shared in parts]
    residents = [Resident(sum(part), part[0], sum(part)) for part in parts]
    total = usage_parsing.together(residents, rollups).total
    assert max(r.total for r in residents) <= total <= sum(r.total for r in residents)

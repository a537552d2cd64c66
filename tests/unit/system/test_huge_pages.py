"""A program runs from its copy in memory; other files are refused; a heap moves while its process runs."""

import mmap
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.router.envoy.process.binary import find_envoy
from serving.system import huge_pages

HAS_HUGE_PAGES = huge_pages.huge_bytes() == huge_pages.HUGE
needs_huge_pages = pytest.mark.skipif(not HAS_HUGE_PAGES, reason="the kernel has no pages of 2 MiB")

CHILD = """
import mmap, sys
memory = mmap.mmap(-1, 16 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
for page in range(0, len(memory) // 2, 4096):
    memory[page] = page >> 12 & 255
print("ready", flush=True)
sys.stdin.readline()
print(all(memory[page] == page >> 12 & 255 for page in range(0, len(memory) // 2, 4096)))
"""
"""A process that uses half of 16 MiB, and checks its content at the end."""


def smaps(pid: int, name: str) -> int:
    """Return one sum of a process's mappings in KiB."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


@needs_huge_pages
def test_program_in_memory_runs_as_its_file_does() -> None:
    path = find_envoy()
    descriptor = huge_pages.program(path)
    try:
        copy = subprocess.run(
            [path, "--version"],
            executable=f"/proc/self/fd/{descriptor}",
            pass_fds=[descriptor],
            capture_output=True,
            check=True,
        )
    finally:
        os.close(descriptor)
    assert copy.stdout == subprocess.run([path, "--version"], capture_output=True, check=True).stdout


@needs_huge_pages
@pytest.mark.parametrize("content", [b"", b"#!/bin/sh\nexec envoy\n", b"\x7fELF\x02\x01" + bytes(58)])
def test_program_is_refused_when_it_is_none(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "envoy"
    path.write_bytes(content)
    with pytest.raises(OSError, match="not a program whose segments can be moved"):
        huge_pages.program(str(path))


@pytest.fixture(scope="module")
def head(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, bytes]]:
    """A file to write to, and the beginning of a program."""
    with open(find_envoy(), "rb") as file:  # noqa: PTH123
        yield tmp_path_factory.mktemp("programs") / "program", file.read(4096)


@needs_huge_pages
@given(at=st.integers(16, 735), value=st.binary(min_size=1, max_size=8))
def test_program_is_refused_when_its_header_is_damaged_and_its_content_missing(
    head: tuple[Path, bytes], at: int, value: bytes
) -> None:
    path, content = head
    path.write_bytes(content[:at] + value + content[at + len(value) :])
    with pytest.raises(OSError):  # noqa: PT011 the message depends on the damage
        os.close(huge_pages.program(str(path)))


@needs_huge_pages
def test_used_regions_of_a_heap_are_moved_while_the_process_runs() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        before, resident = smaps(process.pid, "AnonHugePages"), smaps(process.pid, "Rss")
        regions = huge_pages.heap_regions(process.pid)
        pidfd = os.pidfd_open(process.pid)
        try:
            for region in regions:
                huge_pages.collapse(pidfd, region)
        except PermissionError:
            process.communicate("\n")
            pytest.skip("this user cannot move the pages of another process (CAP_SYS_NICE)")
        finally:
            os.close(pidfd)
        assert 3 <= len(regions) <= 8, "the 8 MiB in use, aligned, and what the interpreter has"
        assert smaps(process.pid, "AnonHugePages") - before == len(regions) * huge_pages.HUGE // 1024
        assert smaps(process.pid, "Rss") - resident < len(regions) * huge_pages.HUGE // 1024 // 2
        assert process.communicate("\n")[0] == "True\n"
    assert mmap.PAGESIZE == 4096, "the child writes one byte of each page"

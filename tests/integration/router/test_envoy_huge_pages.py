"""Envoy's code and heap are in huge pages; without them, or the permission, Envoy serves from small ones."""

import asyncio
import errno
import os
import tempfile
from pathlib import Path

import pytest

from serving.router.envoy.process import huge_heap
from serving.router.envoy.process.huge_heap import keep_in_huge_pages
from serving.system import huge_pages
from tests.rig.control_plane.convergence import until
from tests.rig.machine.full_disk import small_file_system
from tests.rig.servers.chat import chatting
from tests.rig.servers.gateway import GatewayRig, gateway_rig

MIB = 1024 * 1024
needs_huge_pages = pytest.mark.skipif(
    huge_pages.huge_bytes() != huge_pages.HUGE, reason="the kernel has no pages of 2 MiB"
)


def in_huge_pages(rig: GatewayRig, kind: str) -> int:
    """Return Envoy's bytes in huge pages: `ShmemPmdMapped` of its code, `AnonHugePages` of its heap."""
    running = rig.process.running()
    assert running is not None
    lines = Path(f"/proc/{running.pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{kind}:"))


def name(rig: GatewayRig) -> str:
    running = rig.process.running()
    assert running is not None
    return Path(f"/proc/{running.pid}/comm").read_text().strip()


@needs_huge_pages
async def test_envoys_code_is_in_huge_pages_and_the_process_keeps_its_name(tmp_path: Path) -> None:
    async with gateway_rig(tmp_path) as rig:
        assert in_huge_pages(rig, "ShmemPmdMapped") > 32 * MIB
        assert name(rig) == "envoy"


@pytest.mark.parametrize("supported", [True, False])
async def test_envoy_runs_from_its_file_when_huge_pages_are_off_or_not_supported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, supported: bool
) -> None:
    if not supported:
        monkeypatch.setattr(huge_pages, "huge_bytes", lambda: 0)
    async with gateway_rig(tmp_path, huge_pages=not supported) as rig:
        assert in_huge_pages(rig, "ShmemPmdMapped") == 0
        assert name(rig) == "envoy"


@needs_huge_pages
async def test_envoy_in_huge_pages_loads_the_module_that_counts_tokens(tmp_path: Path) -> None:
    async with chatting(tmp_path) as chat:
        assert in_huge_pages(chat.rig, "ShmemPmdMapped") > 32 * MIB
        await chat.serve("continuous")
        await chat.ask(stream=True, max_tokens=3)
        assert (await chat.until_settled()).generated_tokens == 3


async def test_envoy_starts_and_counts_tokens_where_symbolic_links_are_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with small_file_system(tmp_path / "linkless", "size=16m,nosymfollow") as root:
        monkeypatch.setattr(tempfile, "tempdir", str(root))
        async with chatting(root) as chat:
            await chat.serve("continuous")
            await chat.ask(stream=True, max_tokens=3)
            assert (await chat.until_settled()).generated_tokens == 3


@needs_huge_pages
@pytest.mark.skipif(os.geteuid() != 0, reason="only root moves the pages of another process")
async def test_envoys_heap_is_moved_into_huge_pages(tmp_path: Path) -> None:
    async with gateway_rig(tmp_path) as rig:
        before = in_huge_pages(rig, "AnonHugePages")
        task = asyncio.create_task(keep_in_huge_pages(rig.process))
        try:
            await until(lambda: in_huge_pages(rig, "AnonHugePages") >= before + 4 * MIB)
        finally:
            task.cancel()


async def test_the_heap_is_left_alone_when_the_kernel_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(pidfd: int, address: int) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(huge_heap.huge_pages, "collapse", refuse)
    async with gateway_rig(tmp_path) as rig, asyncio.timeout(10):
        await keep_in_huge_pages(rig.process)

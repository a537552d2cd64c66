"""Commands while the process of the API is stopped: the kernel accepts connections, and nobody answers."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from serving.kube import Kube, connect
from serving.resources import kinds
from tests.rig.leaks import snapshot
from tests.rig.servers.api_process import ApiProcess

LIMIT_SECONDS = 5.0
CLOSING_TURNS = 10
"""Turns of the event loop in which TLS and its transport close an aborted socket, one after the other."""


@pytest.fixture
def stopped_api(tmp_path: Path) -> Iterator[ApiProcess]:
    api = ApiProcess(tmp_path / "data").start()
    assert api.process is not None
    os.kill(api.process.pid, signal.SIGSTOP)
    yield api
    os.kill(api.process.pid, signal.SIGCONT)
    api.stop()


def test_a_command_reports_within_5_s_that_a_stopped_api_accepts_and_does_not_answer(
    stopped_api: ApiProcess,
) -> None:
    started = time.monotonic()
    completed = subprocess.run(
        [sys.executable, "-m", "serving.app", "get", "--kubeconfig", str(stopped_api.data_dir.kubeconfig)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    spent = time.monotonic() - started
    server = f"https://127.0.0.1:{stopped_api.settings.port}"
    assert (completed.returncode, completed.stdout) == (5, "")
    assert completed.stderr.startswith(
        f"error: the API at {server} accepts connections, but has not answered for 3 s"
    )
    assert spent < LIMIT_SECONDS


async def test_a_cancelled_watch_leaves_no_connection_to_an_api_that_hangs(tmp_path: Path) -> None:
    """Closing a TLS connection would wait 30 s for the answer of the stopped server."""
    api = ApiProcess(tmp_path / "data").start()
    assert api.process is not None
    try:
        async with await connect(api.data_dir.kubeconfig, component="test") as kube:
            version = (await kube.list(kinds.NAMESPACE)).resource_version
            await kube.create(kinds.NAMESPACE, {"metadata": {"name": "watched"}})
            idle, began = len(snapshot()), asyncio.Event()
            watch = asyncio.ensure_future(_watch_namespaces(kube, version, began))
            await began.wait()  # the watch has the idle connection
            await kube.create(kinds.NAMESPACE, {"metadata": {"name": "another"}})
            assert len(snapshot()) == idle + 1
            os.kill(api.process.pid, signal.SIGSTOP)
            watch.cancel()
            await asyncio.wait([watch])
            for _ in range(CLOSING_TURNS):
                await asyncio.sleep(0)
            assert len(snapshot()) == idle
    finally:
        os.kill(api.process.pid, signal.SIGCONT)
        api.stop()


async def _watch_namespaces(kube: Kube, version: str, began: asyncio.Event) -> None:
    async for _ in kube.watch(kinds.NAMESPACE, None, version):
        began.set()

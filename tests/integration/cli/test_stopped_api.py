"""Commands while the process of the API is stopped: the kernel accepts connections, and nobody answers."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rig.servers.api_process import ApiProcess

LIMIT_SECONDS = 5.0


@pytest.fixture
def api(tmp_path: Path) -> Iterator[ApiProcess]:
    api = ApiProcess(tmp_path / "data").start()
    assert api.process is not None
    yield api
    os.kill(api.process.pid, signal.SIGCONT)
    api.stop()


def get(api: ApiProcess) -> tuple[subprocess.CompletedProcess[str], float]:
    """Run `slipway get`; return its result and its seconds."""
    started = time.monotonic()
    command = [sys.executable, "-m", "serving.app", "get", "--kubeconfig", str(api.data_dir.kubeconfig)]
    completed = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    return completed, time.monotonic() - started


def test_a_command_reports_within_5_s_that_a_stopped_api_accepts_and_does_not_answer(api: ApiProcess) -> None:
    _, own = get(api)
    assert api.process is not None
    os.kill(api.process.pid, signal.SIGSTOP)
    completed, spent = get(api)
    server = f"https://127.0.0.1:{api.settings.port}"
    assert (completed.returncode, completed.stdout) == (5, "")
    assert completed.stderr.startswith(
        f"error: the API at {server} accepts connections, but has not answered for 3 s"
    )
    # A machine that needs more than .7 s for the command itself is busy with other tests.
    assert spent < max(LIMIT_SECONDS, 3.5 + 2 * own)

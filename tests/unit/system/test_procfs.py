"""What /proc says of another process."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from serving.system import procfs

SPIN = "print(flush=True)\nwhile True: pass"
SLEEP = "import time; print(flush=True); time.sleep(600)"


@pytest.fixture
def started(request: pytest.FixtureRequest) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", request.param], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.kill()


def becomes(process: subprocess.Popen[bytes], *, runnable: bool) -> bool:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        if procfs.has_runnable_thread(process.pid) == runnable:
            return True
    return False


@pytest.mark.parametrize("started", [SPIN], indirect=True)
def test_computing_process_is_runnable_and_not_when_it_is_stopped(started: subprocess.Popen[bytes]) -> None:
    assert all(procfs.has_runnable_thread(started.pid) for _ in range(100))
    os.kill(started.pid, signal.SIGSTOP)
    assert becomes(started, runnable=False)


@pytest.mark.parametrize("started", [SLEEP], indirect=True)
def test_sleeping_process_is_not_runnable(started: subprocess.Popen[bytes]) -> None:
    assert becomes(started, runnable=False)


def test_process_that_is_gone_is_not_runnable() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    assert not procfs.has_runnable_thread(process.pid)

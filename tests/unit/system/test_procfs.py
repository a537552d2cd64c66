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
READ = "print(flush=True)\nzeros = open('/dev/zero', 'rb', buffering=0)\nwhile True: zeros.read(1)"
SLEEP = "import time; print(flush=True); time.sleep(600)"


@pytest.fixture
def started(request: pytest.FixtureRequest) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", request.param], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.kill()


def becomes(process: subprocess.Popen[bytes], *, computing: bool) -> bool:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        if bool(procfs.computing_threads(process.pid)) == computing:
            return True
    return False


@pytest.mark.parametrize("started", [SPIN], indirect=True)
def test_process_computes_without_system_calls_until_it_is_stopped(started: subprocess.Popen[bytes]) -> None:
    assert becomes(started, computing=True)
    deadline = time.monotonic() + 10
    while len({procfs.computing_threads(started.pid)[started.pid] for _ in range(100)}) > 1:
        assert time.monotonic() < deadline, "the last system call before the loop is counted once"
    os.kill(started.pid, signal.SIGSTOP)
    assert becomes(started, computing=False)


@pytest.mark.parametrize("started", [READ], indirect=True)
def test_system_calls_of_a_computing_thread_increase_while_it_reads(started: subprocess.Popen[bytes]) -> None:
    first = procfs.computing_threads(started.pid)[started.pid]
    deadline = time.monotonic() + 10
    while procfs.computing_threads(started.pid).get(started.pid, 0) <= first:
        assert time.monotonic() < deadline


@pytest.mark.parametrize("started", [SLEEP], indirect=True)
def test_sleeping_process_does_not_compute(started: subprocess.Popen[bytes]) -> None:
    assert becomes(started, computing=False)


def test_process_that_is_gone_does_not_compute() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    assert procfs.computing_threads(process.pid) == {}

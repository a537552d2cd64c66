"""What a file of tests leaves behind, in this process and in a pytest of its own."""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.rig import leaks

ROOT = Path(__file__).parents[3]
SLEEP = ["sleep", "600"]
ORPHAN = ["sh", "-c", "sleep 600 >/dev/null & echo $!"]


@pytest.fixture
def file(tmp_path: Path) -> leaks.FileOfTests:
    return leaks.FileOfTests(tmp_path.parent)


@pytest.fixture
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for nothing that is ending."""
    monkeypatch.setattr(leaks, "ENDING_SECONDS", 0.0)


def orphan(directory: Path) -> int:
    """Start a process that works in the directory, and whose parent has ended; return its id."""
    started = subprocess.run(ORPHAN, cwd=directory, stdout=subprocess.PIPE, text=True, check=True)
    return int(started.stdout)


@pytest.mark.usefixtures("brief")
def test_a_child_is_a_leak_until_its_parent_has_waited_for_it(file: leaks.FileOfTests) -> None:
    with subprocess.Popen(SLEEP) as child:
        running = file.leaks()
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        zombie = file.leaks()
    assert running == [f"process {child.pid}: sleep 600"]
    assert zombie == [f"process {child.pid}: zombie"]
    assert file.leaks() == []


@pytest.mark.usefixtures("brief")
def test_a_descriptor_is_a_leak_until_it_is_closed(file: leaks.FileOfTests) -> None:
    descriptor = os.open("/dev/null", os.O_RDONLY)
    opened = file.leaks()
    os.close(descriptor)
    assert opened == [f"descriptor {descriptor}: /dev/null"]
    assert file.leaks() == []


@pytest.mark.usefixtures("brief")
def test_an_orphan_is_a_leak_when_it_works_in_a_temporary_directory(tmp_path: Path) -> None:
    file, elsewhere = leaks.FileOfTests(tmp_path.parent), leaks.FileOfTests(tmp_path / "elsewhere")
    pid = orphan(tmp_path)
    try:
        assert file.leaks() == [f"process {pid}: sleep 600"]
        assert elsewhere.leaks() == []
    finally:
        os.kill(pid, signal.SIGKILL)


def test_an_orphan_is_no_leak_when_it_ends_while_the_check_waits(
    file: leaks.FileOfTests, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid, pauses = orphan(tmp_path), 0

    def end_orphan(_: float) -> None:
        nonlocal pauses
        pauses += 1
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)

    monkeypatch.setattr(leaks, "ENDING_SECONDS", 60.0)
    monkeypatch.setattr("tests.rig.leaks.time.sleep", end_orphan)
    try:
        assert file.leaks() == []
    finally:
        end_orphan(0)
    assert pauses > 1


@pytest.mark.usefixtures("brief")
def test_resource_that_the_session_shares_is_no_leak(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leaks, "_shared", set())
    monkeypatch.setattr(leaks, "_shared_directories", set())
    file = leaks.FileOfTests(tmp_path.parent)
    with leaks.shared(tmp_path / "server"):
        child = subprocess.Popen(SLEEP)
    try:
        assert file.leaks() == []
    finally:
        child.kill()
        child.wait()


def test_a_file_fails_when_its_last_fixture_has_left_a_process(tmp_path: Path) -> None:
    """The check is set up before the fixtures of the file, and follows their end; a failure is enough."""
    (tmp_path / "conftest.py").write_text("from tests.conftest import _nothing_left_by_file\n")
    fixture = (
        "import subprocess, pytest\n@pytest.fixture(scope='module', autouse=True)\ndef server():\n"
        "    process = subprocess.Popen(['sleep', '600'])\n    yield\n    process.kill()\n"
    )
    leaving, test = f"{fixture}    global kept\n    kept = process\n", "def test_passes(): pass\n"
    (tmp_path / "test_ends.py").write_text(f"{fixture}    process.wait()\n{test}")
    (tmp_path / "test_leaves.py").write_text(leaving + test)
    (tmp_path / "test_fails.py").write_text(f"{leaving}def test_fails(): assert False\n")
    completed = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-c",
            "/dev/null",
            "--rootdir",
            str(tmp_path),
            "-p",
            "no:cacheprovider",
        ],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "1 failed, 2 passed, 1 error" in completed.stdout
    assert "ERROR test_leaves.py::test_passes - AssertionError: left behind: ['process" in completed.stdout

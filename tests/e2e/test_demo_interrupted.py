"""Ctrl-C in the middle of the demo: it cleans up, and says with its exit code that it was interrupted."""

import signal
import subprocess
import sys
import time
from pathlib import Path


def command_lines() -> str:
    return subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout


def begun(where: Path, said: Path, step: str) -> subprocess.Popen[bytes]:
    """Start the demo, and return when it has begun this step."""
    with said.open("wb") as sink:
        demo = subprocess.Popen(
            [sys.executable, "-m", "serving.app", "demo", "--data-dir", str(where)],
            stdout=sink, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
    deadline = time.monotonic() + 60
    while step not in said.read_text():
        assert demo.poll() is None, said.read_text()
        assert time.monotonic() < deadline, said.read_text()
        time.sleep(0.05)
    return demo


def test_ctrl_c_while_up_starts_leaves_no_process_and_no_file(tmp_path: Path) -> None:
    where, said = tmp_path / "demo", tmp_path / "said.txt"
    demo = begun(where, said, "Starting")
    demo.send_signal(signal.SIGINT)
    assert demo.wait(60) == 130, said.read_text()
    assert "Interrupted: cleaning up" in said.read_text()
    assert "Traceback" not in said.read_text()
    assert not where.exists()
    assert str(where) not in command_lines()


def test_ctrl_c_twice_while_jobs_run_leaves_no_process_and_no_file(tmp_path: Path) -> None:
    where, said = tmp_path / "demo", tmp_path / "said.txt"
    demo = begun(where, said, "Training")
    demo.send_signal(signal.SIGINT)
    deadline = time.monotonic() + 20
    while "cleaning up" not in said.read_text():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    demo.send_signal(signal.SIGINT)
    assert demo.wait(60) == 130, said.read_text()
    assert "still cleaning up" in said.read_text()
    assert not where.exists()
    assert str(where) not in command_lines()

"""Ctrl-C during the demo: the demo cleans up, and exits with the code of an interrupt."""

import signal
import subprocess
import sys
import time
from pathlib import Path


def command_lines() -> str:
    return subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout


def start_demo(data_dir: Path, output: Path, step: str) -> subprocess.Popen[bytes]:
    """Start the demo, and return when its output names the step."""
    with output.open("wb") as sink:
        demo = subprocess.Popen(
            [sys.executable, "-m", "serving.app", "demo", "--data-dir", str(data_dir)],
            stdout=sink,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    deadline = time.monotonic() + 60
    while step not in output.read_text():
        assert demo.poll() is None, output.read_text()
        assert time.monotonic() < deadline, output.read_text()
        time.sleep(0.05)
    return demo


def test_ctrl_c_while_up_starts_leaves_no_process_and_no_file(tmp_path: Path) -> None:
    data_dir, output = tmp_path / "demo", tmp_path / "output.txt"
    demo = start_demo(data_dir, output, "Starting")
    demo.send_signal(signal.SIGINT)
    assert demo.wait(60) == 130, output.read_text()
    assert "Interrupted: cleaning up" in output.read_text()
    assert "Traceback" not in output.read_text()
    assert not data_dir.exists()
    assert str(data_dir) not in command_lines()


def test_ctrl_c_twice_while_jobs_run_leaves_no_process_and_no_file(tmp_path: Path) -> None:
    data_dir, output = tmp_path / "demo", tmp_path / "output.txt"
    demo = start_demo(data_dir, output, "Training")
    demo.send_signal(signal.SIGINT)
    deadline = time.monotonic() + 20
    while "cleaning up" not in output.read_text():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    demo.send_signal(signal.SIGINT)
    assert demo.wait(60) == 130, output.read_text()
    assert "still cleaning up" in output.read_text()
    assert not data_dir.exists()
    assert str(data_dir) not in command_lines()

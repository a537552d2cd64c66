"""`slipway up` prints its addresses, the deaths of components and its own end; the rest goes to log files."""

import signal
import subprocess
import sys
import time
from pathlib import Path

from serving.data_dir import DataDir
from serving.system import processes


def wait_for(text: str, file: Path, up: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 60
    while text not in file.read_text():
        assert up.poll() is None, file.read_text()
        assert time.monotonic() < deadline, file.read_text()
        time.sleep(0.05)


def test_up_prints_addresses_deaths_and_its_end_and_logs_the_rest(tmp_path: Path) -> None:
    data_dir, output = DataDir(tmp_path / "data"), tmp_path / "output.txt"
    options = ["--data-dir", str(data_dir.root), "--port", "0", "--gateway-port", "0"]
    with output.open("wb") as sink:
        up = subprocess.Popen(
            [sys.executable, "-m", "serving.app", "up", *options],
            stdout=sink,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        wait_for("logs ", output, up)
        node = processes.read_identity(data_dir.identity("node"))
        assert node is not None
        assert processes.send_signal(node[0], signal.SIGKILL)
        wait_for("node ended", output, up)
    finally:
        up.send_signal(signal.SIGINT)
        code = up.wait(60)
    assert code == 0
    lines = output.read_text().splitlines()
    beginnings = [
        "Slipway is up",
        "  gateway ",
        "  api ",
        "  kubectl ",
        "  logs ",
        "node ended (-9)",
        "Stopping",
        "Stopped.",
    ]
    assert len(lines) == len(beginnings), lines
    for line, beginning in zip(lines, beginnings, strict=True):
        assert line.startswith(beginning)
    assert "node ended (-9)" in (data_dir.logs / "up.log").read_text()

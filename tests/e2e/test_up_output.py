"""What `slipway up` shows on a terminal: where everything is, a component's death, its own end; the rest is in files."""

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


def test_up_shows_what_its_user_needs_and_logs_the_rest(tmp_path: Path) -> None:
    where, said = DataDir(tmp_path / "data"), tmp_path / "said.txt"
    with said.open("wb") as sink:
        up = subprocess.Popen(
            [sys.executable, "-m", "serving.app", "up", "--data-dir", str(where.root),
             "--port", "0", "--gateway-port", "0"],
            stdout=sink, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
    wait_for("logs ", said, up)
    node = processes.read_identity(where.identity("node"))
    assert node is not None
    assert processes.send_signal(node[0], signal.SIGKILL)
    wait_for("node ended", said, up)
    up.send_signal(signal.SIGINT)
    assert up.wait(60) == 0
    lines = said.read_text().splitlines()
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
    assert "node ended (-9)" in (where.logs / "up.log").read_text()

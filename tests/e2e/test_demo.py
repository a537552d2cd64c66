"""`slipway demo` from its start to its end."""

import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def test_demo_passes_its_checks_in_time_and_leaves_no_process_or_file(tmp_path: Path) -> None:
    data_dir = tmp_path / "demo"
    started = time.monotonic()
    demo = subprocess.run(
        [sys.executable, "-m", "serving.app", "demo", "--data-dir", str(data_dir)],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert demo.returncode == 0, demo.stdout + demo.stderr
    assert "FAIL" not in demo.stdout
    assert demo.stdout.count("ok   ") == 12
    assert "ok   the burst brought 3 replicas or more" in demo.stdout
    assert "ok   silence took the last replica" in demo.stdout
    assert "ok   it was answered, by a replica that it woke" in demo.stdout
    assert re.search(r"the request that woke it waited \d+\.\d\d s\n", demo.stdout)
    assert not data_dir.exists()
    processes = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert str(data_dir) not in processes
    print(f"{time.monotonic() - started:.0f} s")

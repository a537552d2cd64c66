"""The demo as a newcomer runs it, once, for real."""

import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def test_the_demo_holds_all_its_checks_in_time_and_leaves_nothing(tmp_path: Path) -> None:
    where = tmp_path / "demo"
    started = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "serving.app", "demo", "--data-dir", str(where)],
        capture_output=True, text=True, timeout=280, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "FAIL" not in done.stdout
    assert done.stdout.count("ok   ") == 12
    assert "ok   the burst brought 3 replicas or more" in done.stdout
    assert "ok   silence took the last replica" in done.stdout
    assert "ok   it was answered, by a replica that it woke" in done.stdout
    assert re.search(r"the request that woke it waited \d+\.\d\d s\n", done.stdout)
    assert not where.exists()
    assert (
        str(where)
        not in subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    )
    print(f"{time.monotonic() - started:.0f} s")

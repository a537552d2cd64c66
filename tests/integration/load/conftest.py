"""A target in a process of its own, and what it says of the requests that it saw."""

import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

SOURCE = Path(__file__).parents[2] / "programs" / "load_target.py"


class Target:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        self.url = f"http://127.0.0.1:{int(process.stdout.readline())}"

    def get(self, path: str) -> bytes:
        with urllib.request.urlopen(self.url + path, timeout=10) as answer:
            return bytes(answer.read())

    def log(self) -> list[dict[str, Any]]:
        """What it has answered since the last time."""
        return list(json.loads(self.get("/log")))


@pytest.fixture
def target() -> Iterator[Target]:
    process = subprocess.Popen(
        [sys.executable, str(SOURCE)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        yield Target(process)
    finally:
        process.kill()
        process.wait()

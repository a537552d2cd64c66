"""A load target in its own process, with its log of requests."""

import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

SOURCE = Path(__file__).parents[2] / "programs" / "load_target.py"


class LoadTarget:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        self.url = f"http://127.0.0.1:{int(process.stdout.readline())}"

    def get(self, path: str) -> bytes:
        with urllib.request.urlopen(self.url + path, timeout=10) as response:
            return bytes(response.read())

    def log(self) -> list[dict[str, Any]]:
        """Return the requests since the last call."""
        return list(json.loads(self.get("/log")))


@pytest.fixture
def target() -> Iterator[LoadTarget]:
    with subprocess.Popen(
        [sys.executable, str(SOURCE)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield LoadTarget(process)
        finally:
            process.kill()

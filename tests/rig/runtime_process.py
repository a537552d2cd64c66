"""Starts a runtime as the node would, without the node: a module, an image and a port of its own."""

import itertools
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import httpx

from tests.rig import addresses

ROOT = Path(__file__).parents[2]
DEADLINE = 60.0
HOST = addresses.own(70)
_PORTS = itertools.count(20_000, 10)
"""The address is this test process's own, so every port of it is free."""


@dataclass
class Running:
    """A started server."""

    process: subprocess.Popen[bytes]
    port: int
    log: Path

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"


def environment(digest: str, models: Path, port: int, **changed: str) -> dict[str, str]:
    return {
        **os.environ,
        "SLIPWAY_MODEL_NAME": "digits",
        "SLIPWAY_MODEL_VERSION": "digits-v1",
        "SLIPWAY_MODEL_DIR": str(models),
        "SLIPWAY_MODEL_DIGEST": digest,
        "HOST": HOST,
        "PORT": str(port),
        **changed,
    }


def start(command: list[str], digest: str, models: Path, log: Path, **changed: str) -> Running:
    """Start `python COMMAND...` to serve an image's models."""
    port = next(_PORTS)
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, *command],
            cwd=ROOT,
            env=environment(digest, models, port, **changed),
            stderr=output,
        )
    return Running(process, port, log)


def wait_ready(server: Running) -> httpx.Response:
    """Return the first answer that says that it is ready."""
    deadline = time.monotonic() + DEADLINE
    while time.monotonic() < deadline:
        assert server.process.poll() is None, server.log.read_text()
        try:
            answer = httpx.get(f"http://{server.address}/v2/health/ready")
        except httpx.TransportError:
            time.sleep(0.05)
        else:
            if answer.status_code == 200:
                return answer
    raise AssertionError(f"not ready: {server.log.read_text()}")

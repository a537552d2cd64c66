"""Starts a runtime as the node does: a module, an image, and a port of its own."""

import itertools
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import httpx

from serving.images.store import disk
from serving.resources.formats import file_list
from tests.rig.machine import addresses

ROOT = Path(__file__).parents[3]
DEADLINE = 60.0
_PORTS = itertools.count(20_000, 10)
"""All ports are free, as the address belongs to this test process."""


@dataclass
class Running:
    """A started server."""

    process: subprocess.Popen[bytes]
    port: int
    log: Path

    @property
    def address(self) -> str:
        return f"{host()}:{self.port}"


def host() -> str:
    """Return the address of this worker's runtimes."""
    return addresses.own(70)


def environment(digest: str, models: Path, port: int, **changed: str) -> dict[str, str]:
    """Return the variables of a runtime; the digest of `files.json` is that of the file, if none is given."""
    if "SLIPWAY_MODEL_FILES_DIGEST" not in changed:
        changed["SLIPWAY_MODEL_FILES_DIGEST"] = disk.file_digest(models.parent / file_list.NAME)
    return {
        **os.environ,
        "SLIPWAY_MODEL_NAME": "digits",
        "SLIPWAY_MODEL_VERSION": "digits-v1",
        "SLIPWAY_MODEL_DIR": str(models),
        "SLIPWAY_MODEL_DIGEST": digest,
        "HOST": host(),
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
    """Return the first response of a ready server. Without `verify`, httpx reads no certificates: 50 ms."""
    deadline = time.monotonic() + DEADLINE
    while time.monotonic() < deadline:
        assert server.process.poll() is None, server.log.read_text()
        try:
            response = httpx.get(f"http://{server.address}/v2/health/ready", verify=False)
        except httpx.TransportError:
            time.sleep(0.05)
        else:
            if response.status_code == 200:
                return response
    raise AssertionError(f"not ready: {server.log.read_text()}")

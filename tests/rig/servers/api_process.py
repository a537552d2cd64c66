"""The embedded API server in a process of its own, which tests start, stop, kill and restart."""

import contextlib
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import httpx
import yaml

from serving.data_dir import DataDir
from serving.settings import DEFAULTS, ApiSettings

_PROGRAM = """
import asyncio, logging, signal, sys
from dataclasses import replace
from pathlib import Path
import uvloop
from serving.embedded.apiserver import server
from serving.data_dir import DataDir
from serving.settings import DEFAULTS, ApiSettings
logging.basicConfig(level=logging.INFO)

async def main():
    settings = replace(DEFAULTS, api=eval(sys.argv[2]))
    task = asyncio.ensure_future(server.run(DataDir(Path(sys.argv[1])), settings))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    try:
        await task
    except asyncio.CancelledError:
        pass

uvloop.run(main())
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class ApiProcess:
    """One server over one data directory; restarts keep the port."""

    def __init__(self, root: Path, **changes: object) -> None:
        self.data_dir = DataDir(root)
        self.settings: ApiSettings = replace(DEFAULTS.api, port=free_port(), **changes)
        self.log = root.with_name(root.name + ".log")
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> "ApiProcess":
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-c", _PROGRAM, str(self.data_dir.root), repr(self.settings)],
                stdout=output,
                stderr=output,
            )
        deadline = time.monotonic() + 20
        while not self._answers():
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.05)
        return self

    def _answers(self) -> bool:
        with (
            contextlib.suppress(OSError, httpx.HTTPError, yaml.YAMLError, ssl.SSLError),
            self.http() as client,
        ):
            return client.get("/readyz").status_code == 200
        return False

    def http(self, *, token: str | None = None) -> httpx.Client:
        """Return a client with the CA and the token of the kubeconfig."""
        config = yaml.safe_load(self.data_dir.kubeconfig.read_text())
        context = ssl.create_default_context(cafile=str(self.data_dir.tls / "ca.crt"))
        secret = config["users"][0]["user"]["token"] if token is None else token
        return httpx.Client(
            base_url=config["clusters"][0]["cluster"]["server"],
            verify=context,
            headers={"Authorization": f"Bearer {secret}", "User-Agent": "test/1"},
            timeout=15,
            trust_env=False,
        )

    def stop(self, sig: int = signal.SIGTERM) -> float:
        """Signal the server and wait for its end; return the seconds until then."""
        assert self.process is not None
        signalled = time.monotonic()
        os.kill(self.process.pid, sig)
        try:
            self.process.wait(10)
        finally:
            self.process.kill()
            self.process.wait()
        return time.monotonic() - signalled

"""The embedded API server in a process of its own, which tests start, stop, kill and restart."""

import asyncio
import contextlib
import logging
import os
import signal
import ssl
import time
from dataclasses import replace
from pathlib import Path

import httpx
import yaml

from serving.data_dir import DataDir
from serving.settings import DEFAULTS, ApiSettings
from serving.system import allocator
from tests.rig.machine.ports import free_port
from tests.rig.servers.preloaded import PreloadedProcess


def _run(root: Path, settings: ApiSettings) -> None:
    import uvloop

    from serving.embedded.apiserver import server
    from serving.resources import catalog

    logging.basicConfig(level=logging.INFO)
    allocator.return_large_blocks()

    async def main() -> None:
        run = server.run(DataDir(root), replace(DEFAULTS, api=settings), catalog.DEFINITIONS)
        task = asyncio.ensure_future(run)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        with contextlib.suppress(asyncio.CancelledError):
            await task

    uvloop.run(main())


class ApiProcess:
    """One server over one data directory; restarts keep the port."""

    def __init__(self, root: Path, **changes: object) -> None:
        self.data_dir = DataDir(root)
        self.settings: ApiSettings = replace(DEFAULTS.api, port=free_port(), **changes)
        self.log = root.with_name(root.name + ".log")
        self.process: PreloadedProcess | None = None

    def start(self) -> "ApiProcess":
        self.process = PreloadedProcess(_run, self.data_dir.root, self.settings, log=self.log)
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

"""Components of an installation as processes of this machine, each with the token of its account."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from serving.data_dir import DataDir
from serving.kube import Kube
from serving.resources.kinds import Kind
from serving.router.envoy.process.envoy_process import EnvoyProcess
from serving.settings import GatewaySettings
from tests.objects.contract_objects import eventually
from tests.rig.control_plane.recorded_requests import RecordingProxy
from tests.rig.machine.ports import free_port

SERVICE_ACCOUNT = Kind("", "v1", "ServiceAccount", "serviceaccounts")
CONTROLLERS, GATEWAY = "slipway-controllers", "slipway-gateway"
"""The accounts of `manifests/install`."""
END_SECONDS = 30.0
"""Longest end of a component after SIGTERM."""
_SECONDS = aiohttp.ClientTimeout(total=5)


@dataclass(frozen=True)
class ComponentProcess:
    """A running component."""

    process: "subprocess.Popen[bytes]"
    health_port: int
    log_file: Path

    async def readiness(self) -> tuple[int, str]:
        """Return status and text of `/readyz`; 0 while nothing listens."""
        assert self.process.poll() is None, self.log()
        with contextlib.suppress(aiohttp.ClientError, TimeoutError):
            async with (
                aiohttp.ClientSession(timeout=_SECONDS) as session,
                session.get(f"http://127.0.0.1:{self.health_port}/readyz") as answer,
            ):
                return answer.status, await answer.text()
        return 0, ""

    async def until_ready(self, seconds: float = 60) -> None:
        """Wait for the status 200 of `/readyz`."""

        async def is_ready() -> bool:
            return (await self.readiness())[0] == 200

        await eventually(is_ready, seconds)

    def log(self) -> str:
        """Return the component's log."""
        return self.log_file.read_text(errors="replace")


@dataclass(frozen=True)
class Installation:
    """The accounts of an installation in one namespace, and the proxy between its components and the API."""

    kube: Kube
    namespace: str
    proxy: RecordingProxy
    root: Path
    """Folder of the data directories."""

    @asynccontextmanager
    async def component(
        self, name: str, account: str, settings: Mapping[str, object] | None = None, *, beside: str = ""
    ) -> AsyncIterator[ComponentProcess]:
        """Run a component until the end of the block, then end it by SIGTERM.

        Args:
            name: of the component.
            account: its service account.
            settings: its variables, without `SLIPWAY_`.
            beside: the component whose data directory it shares.
        """
        data = DataDir(self.root / (beside or name))
        data.root.mkdir(mode=0o700, exist_ok=True)
        request = {"spec": {"expirationSeconds": 3600}}
        path = SERVICE_ACCOUNT.path(self.namespace, account, "token")
        answer = await self.kube.request("POST", path, body=request)
        self.proxy.write_kubeconfig_of(data.kubeconfig, account, answer["status"]["token"])
        variables = {"CONTROLLERS__LEASE_NAMESPACE": self.namespace, **(settings or {})}
        log_file, port = self.root / f"{name}.log", free_port()
        arguments = [name, "--data-dir", str(data.root), "--health-port", str(port)]
        process = _started(arguments, variables, log_file)
        try:
            yield ComponentProcess(process, port, log_file)
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                await asyncio.to_thread(process.wait, END_SECONDS)
            finally:
                process.kill()
                if name == "gateway" and (envoy := EnvoyProcess(data, GatewaySettings()).running()):
                    os.kill(envoy.pid, signal.SIGKILL)


def _started(
    arguments: Sequence[str], settings: Mapping[str, object], log_file: Path
) -> "subprocess.Popen[bytes]":
    with log_file.open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "serving.app", "component", *arguments],
            env=os.environ | {f"SLIPWAY_{name}": str(value) for name, value in settings.items()},
            stdout=log,
            stderr=log,
        )

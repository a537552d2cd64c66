"""The rejected alternative: clusters with inline endpoints, in one file that Envoy watches."""

import asyncio
import json
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp

from rig.harness import interval, percentile, process_seconds, resident_mib
from serving import clock
from serving.protobuf import field
from serving.router.envoy import clusters
from serving.router.envoy.process.binary import find_envoy
from serving.router.envoy.resource import type_url
from serving.router.plan.service import Cluster, Endpoint
from serving.settings import DEFAULTS
from serving.system.files import atomic_file

POLL_SECONDS = 0.002
START_SECONDS = 30.0


def _encoded(cluster: Cluster) -> bytes:
    """The product's cluster with its endpoints inside: field 33 of Cluster, type STATIC."""
    message = clusters.cluster(cluster, DEFAULTS.gateway)
    message.ClearField("type")
    message.ClearField("eds_cluster_config")
    assignment = clusters.load_assignment(cluster, clusters.SocketFolders("", ""))
    inside = message.SerializeToString() + field(33, assignment.SerializeToString())
    return field(1, type_url(type(message)).encode()) + field(2, inside)


class _File:
    def __init__(self, path: Path, admin: str) -> None:
        self._path = path
        self._admin = admin
        self._version = 0
        self._session: aiohttp.ClientSession | None = None

    def write(self, encoded: Sequence[bytes]) -> None:
        self._version += 1
        head = field(1, str(self._version).encode())
        atomic_file.replace(self._path, head + b"".join(field(2, cluster) for cluster in encoded))

    async def accepted(self) -> None:
        self._session = self._session or aiohttp.ClientSession(connector=aiohttp.UnixConnector(self._admin))
        deadline = clock.monotonic() + START_SECONDS
        while clock.monotonic() < deadline:
            try:
                url = "http://admin/stats?type=TextReadouts&filter=cds.version_text"
                async with self._session.get(url) as answer:
                    if f'"{self._version}"' in await answer.text():
                        return
            except aiohttp.ClientError:
                pass
            await asyncio.sleep(POLL_SECONDS)
        raise RuntimeError("Envoy has not accepted the clusters' file")

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()


def _bootstrap(folder: Path) -> dict[str, Any]:
    watched = {"path_config_source": {"path": str(folder / "clusters.pb")}, "resource_api_version": "V3"}
    return {
        "node": {"id": "bench", "cluster": "bench"},
        "admin": {"address": {"pipe": {"path": str(folder / "admin.sock")}}},
        "dynamic_resources": {"cds_config": watched},
    }


async def measure(clusters: Sequence[Cluster], changes: int) -> dict[str, object]:
    """Return the cost of adding and removing one endpoint, as `endpoint_delivery` does for the stream."""
    with tempfile.TemporaryDirectory(prefix="slipway-file-") as root:
        folder = Path(root)
        (folder / "bootstrap.json").write_text(json.dumps(_bootstrap(folder)))
        file, encoded = (
            _File(folder / "clusters.pb", str(folder / "admin.sock")),
            [_encoded(c) for c in clusters],
        )
        file.write(encoded)
        command = [find_envoy(), "-c", str(folder / "bootstrap.json"), "--disable-hot-restart"]
        command += ["--concurrency", "1", "--log-level", "error"]
        started = clock.monotonic()
        envoy = await asyncio.create_subprocess_exec(*command, stdin=subprocess.DEVNULL)
        try:
            await file.accepted()
            cold = clock.monotonic() - started
            times, extra = [], Endpoint("127.79.0.1", 8080)
            cpu = process_seconds(envoy.pid)
            for n in range(changes):
                endpoints = clusters[0].endpoints + ((extra,) if n % 2 == 0 else ())
                began = clock.monotonic()
                file.write([_encoded(replace(clusters[0], endpoints=endpoints)), *encoded[1:]])
                await file.accepted()
                times.append(1000 * (clock.monotonic() - began))
            cpu = process_seconds(envoy.pid) - cpu
            return {
                "clusters": len(clusters),
                "coldSeconds": round(cold, 3),
                "endpointChangeMs": interval(times),
                "endpointChangeP95Ms": round(percentile(times, 95), 1),
                "envoyCpuMsPerEndpointChange": round(1000 * cpu / changes, 1),
                "residentMiB": resident_mib(envoy.pid),
            }
        finally:
            envoy.terminate()
            await envoy.wait()
            await file.close()

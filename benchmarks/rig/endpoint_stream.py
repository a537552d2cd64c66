"""The alternative that was not taken: endpoints over one gRPC stream (ADS), to an Envoy with the product's clusters.

Needs grpcio, which the product does not: `pip install grpcio`.
"""

import asyncio
import contextlib
import json
import subprocess
import tempfile
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from rig.harness import interval, percentile, process_seconds, resident_mib
from serving import clock
from serving.router.admin import Admin
from serving.router.binary import find_envoy
from serving.router.envoy import clusters, wire
from serving.router.plan import Cluster, Endpoint
from serving.settings import DEFAULTS

_TYPE = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
_METHOD = "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources"
START_SECONDS = 30.0


class Stream:
    """Answers one Envoy: what it asks for at first, then what changes."""

    def __init__(self, found: Sequence[Cluster]) -> None:
        self._clusters = {cluster.name: cluster for cluster in found}
        self._sent: set[str] = set()
        self._version = 0
        self._out: asyncio.Queue[bytes] = asyncio.Queue()
        self._accepted = asyncio.Condition()
        self._accepted_version = 0

    async def change(self, cluster: Cluster) -> None:
        """Push one cluster's endpoints; returns when Envoy has acknowledged them."""
        self._clusters[cluster.name] = cluster
        version = self._push([cluster.name])
        async with self._accepted:
            await self._accepted.wait_for(lambda: self._accepted_version >= version)

    async def complete(self) -> None:
        async with self._accepted:
            await self._accepted.wait_for(
                lambda: len(self._sent) == len(self._clusters) and self._accepted_version == self._version
            )

    def _push(self, names: Sequence[str]) -> int:
        self._version += 1
        self._sent.update(names)
        assignments = [
            {"@type": _TYPE, **clusters.cluster(self._clusters[name], DEFAULTS.gateway)["load_assignment"]}
            for name in names
        ]
        version = str(self._version).encode()
        self._out.put_nowait(
            wire.field(1, version) + b"".join(wire.field(2, wire.encode("Any", a)) for a in assignments)
            + wire.field(4, _TYPE.encode()) + wire.field(5, version)
        )  # fmt: skip
        return self._version

    async def serve(self, requests: AsyncIterator[bytes], _context: object) -> AsyncIterator[bytes]:
        reading = asyncio.ensure_future(self._read(requests))
        try:
            while True:
                yield await self._out.get()
        finally:
            reading.cancel()

    async def _read(self, requests: AsyncIterator[bytes]) -> None:
        async for request in requests:
            fields: dict[int, list[Any]] = {}
            for number, content in wire.parts(request):
                fields.setdefault(number, []).append(content)
            if 6 in fields:
                raise RuntimeError(f"Envoy rejected endpoints: {fields[6]!r}")
            wanted = [name.decode() for name in fields.get(3, [])]
            fresh = [name for name in wanted if name not in self._sent]
            async with self._accepted:
                self._accepted_version = max(self._accepted_version, int(fields.get(1, [b"0"])[0]))
                if fresh:
                    self._push(fresh)
                self._accepted.notify_all()


def _bootstrap(found: Sequence[Cluster], folder: Path) -> dict[str, Any]:
    xds = {
        "name": "xds", "type": "STATIC",
        "typed_extension_protocol_options": {
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
                "explicit_http_config": {"http2_protocol_options": {}},
            }
        },
        "load_assignment": {"cluster_name": "xds", "endpoints": [{"lb_endpoints": [
            {"endpoint": {"address": {"pipe": {"path": str(folder / "xds.sock")}}}}]}]},
    }  # fmt: skip
    streamed = []
    for each in found:
        shape = clusters.cluster(each, DEFAULTS.gateway)
        del shape["load_assignment"], shape["@type"]
        streamed.append(
            shape
            | {"type": "EDS", "eds_cluster_config": {"eds_config": {"ads": {}, "resource_api_version": "V3"}}}
        )
    ads = {
        "api_type": "GRPC",
        "transport_api_version": "V3",
        "grpc_services": [{"envoy_grpc": {"cluster_name": "xds"}}],
    }
    return {
        "node": {"id": "bench", "cluster": "bench"},
        "admin": {"address": {"pipe": {"path": str(folder / "admin.sock")}}},
        "dynamic_resources": {"ads_config": ads},
        "static_resources": {"clusters": [xds, *streamed]},
    }  # fmt: skip


@contextlib.asynccontextmanager
async def _server(stream: Stream, folder: Path) -> AsyncIterator[None]:
    import grpc  # noqa: PLC0415 only this arm needs it

    service, _, method = _METHOD[1:].partition("/")
    handler = grpc.stream_stream_rpc_method_handler(stream.serve)
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {method: handler}),))
    server.add_insecure_port(f"unix:{folder / 'xds.sock'}")
    await server.start()
    try:
        yield
    finally:
        await server.stop(0)


async def measure(found: Sequence[Cluster], changes: int) -> dict[str, object]:
    """What one endpoint's coming and going costs, as `endpoint_delivery` measures it for the clusters' file."""
    with tempfile.TemporaryDirectory(prefix="slipway-stream-") as root:
        folder = Path(root)
        (folder / "bootstrap.json").write_text(json.dumps(_bootstrap(found, folder)))
        stream = Stream(found)
        async with _server(stream, folder), Admin(folder / "admin.sock") as admin:
            command = [find_envoy(), "-c", str(folder / "bootstrap.json"), "--disable-hot-restart"]
            command += ["--concurrency", "1", "--log-level", "error"]
            envoy = await asyncio.create_subprocess_exec(*command, stdin=subprocess.DEVNULL)
            try:
                started = clock.monotonic()
                async with asyncio.timeout(START_SECONDS):
                    await stream.complete()
                cold = clock.monotonic() - started
                times, extra = [], Endpoint("127.79.0.1", 8080)
                cpu = process_seconds(envoy.pid)
                for n in range(changes):
                    endpoints = found[0].endpoints + ((extra,) if n % 2 == 0 else ())
                    began = clock.monotonic()
                    await stream.change(Cluster(found[0].name, endpoints))
                    times.append(1000 * (clock.monotonic() - began))
                cpu = process_seconds(envoy.pid) - cpu
                assert await admin.ready()
                return {
                    "clusters": len(found), "coldSeconds": round(cold, 3),
                    "endpointChangeMs": interval(times), "endpointChangeP95Ms": round(percentile(times, 95), 1),
                    "envoyCpuMsPerEndpointChange": round(1000 * cpu / changes, 1),
                    "residentMiB": resident_mib(envoy.pid),
                }  # fmt: skip
            finally:
                envoy.terminate()
                await envoy.wait()

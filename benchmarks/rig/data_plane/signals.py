"""Ways by which a gateway reads Envoy's counters: scraped as a page, or sent over gRPC."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import grpc

from rig.data_plane.envoy_world import EnvoyWorld
from serving import clock
from serving.protobuf import content, field, integer, parts, real, text, varint
from serving.router.envoy.counts import statistics
from serving.router.envoy.counts.count_table import Answers, CountTable
from serving.router.envoy.local_replies import Json
from serving.router.metrics.labels import Labels
from serving.router.metrics.page import EnvoyCounts

EVERYTHING = "page, all statistics"
PAGE = "page"
REPORTS = "load reports"
SINK = "statistics sink"
WAYS = (EVERYTHING, PAGE, REPORTS, SINK)

_CLUSTER = "signals"
_OPTIONS = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
_METHODS = {
    REPORTS: ("envoy.service.load_stats.v3.LoadReportingService", "StreamLoadStats"),
    SINK: ("envoy.service.metrics.v3.MetricsService", "StreamMetrics"),
}
SENT = tuple(_METHODS)
"""Ways in which Envoy sends without a request."""
_UNLIMITED = [("grpc.max_receive_message_length", -1)]

Counts = dict[str, int]
"""Arrived requests by cluster."""


@dataclass
class SignalReadings:
    """The number of readings, and the counts of the last."""

    number: int = 0
    counts: Counts | None = None
    _counts: EnvoyCounts | None = None

    def take(self, counts: Counts) -> None:
        self.number += 1
        self.counts = counts

    def page(self, answers: dict[str, Answers], text: str, labels: dict[str, Labels]) -> None:
        """Parse Envoy's page as the gateway does, and write the gateway's own."""
        self._counts = self._counts or EnvoyCounts(0.0)
        self._counts.update(statistics.parse(text), answers, clock.now().timestamp())
        self._counts.page("local", labels)
        self.take({name: counter.received for name, counter in self._counts.counts.items()})

    def report(self, message: bytes) -> None:
        """Read a LoadStatsRequest; it has the increase since the previous one."""
        counts = dict(self.counts or {})
        for number, cluster in parts(message):
            if number == 2:
                name, issued = _reported(content(cluster))
                counts[name] = counts.get(name, 0) + issued
        self.take(counts)

    def streamed(self, message: bytes) -> None:
        """Read a StreamMetricsMessage."""
        counts: Counts = {}
        for number, family in parts(message):
            if number == 2 and (value := _counter(content(family))) is not None:
                counts[value[0]] = value[1]
        self.take(counts)


def _reported(message: bytes) -> tuple[str, int]:
    name, issued = "", 0
    for number, value in parts(message):
        if number == 1:
            name = text(value)
        elif number == 2:
            issued += sum(integer(count) for field, count in parts(content(value)) if field == 8)
    return name, issued


def _counter(message: bytes) -> tuple[str, int] | None:
    """Return cluster and count of a MetricFamily of arrived requests; None for another."""
    fields = dict(parts(message))
    name = text(fields.get(1, b""))
    if not name.endswith(".upstream_rq_total") or "/" not in name:
        return None
    metric = dict(parts(content(fields[4])))
    value = dict(parts(content(metric[3])))[1]
    return name.removeprefix("cluster.").removesuffix(".upstream_rq_total"), round(real(value))


def changed(way: str, socket: Path, seconds: float) -> Callable[[Json], None]:
    """Return the change of Envoy's bootstrap for this way; `seconds` between the reports that Envoy sends."""

    def change(config: Json) -> None:
        if way == EVERYTHING:
            del config["stats_config"]["stats_matcher"], config["deferred_stat_options"]
        if way not in _METHODS:
            return
        service = [{"envoy_grpc": {"cluster_name": _CLUSTER}}]
        config["static_resources"]["clusters"].append(_grpc_cluster(socket))
        if way == REPORTS:
            config["cluster_manager"] = {
                "load_stats_config": {
                    "api_type": "GRPC",
                    "transport_api_version": "V3",
                    "grpc_services": service,
                }
            }
            return
        del config["stats_flush_on_admin"]
        config["stats_flush_interval"] = f"{seconds}s"
        config["stats_sinks"] = [
            {
                "name": "envoy.stat_sinks.metrics_service",
                "typed_config": {
                    "@type": "type.googleapis.com/envoy.config.metrics.v3.MetricsServiceConfig",
                    "transport_api_version": "V3",
                    "grpc_service": service[0],
                },
            }
        ]

    return change


def _grpc_cluster(socket: Path) -> Json:
    address = {"endpoint": {"address": {"pipe": {"path": str(socket)}}}}
    return {
        "name": _CLUSTER,
        "connect_timeout": "1s",
        "typed_extension_protocol_options": {
            _OPTIONS: {
                "@type": f"type.googleapis.com/{_OPTIONS}",
                "explicit_http_config": {"http2_protocol_options": {}},
            }
        },
        "load_assignment": {"cluster_name": _CLUSTER, "endpoints": [{"lb_endpoints": [address]}]},
    }


@contextlib.asynccontextmanager
async def receiving(
    way: str, socket: Path, seconds: float, begin: asyncio.Event
) -> AsyncIterator[SignalReadings]:
    """Receive the counts that Envoy sends, from `begin` on; for scraped pages, nothing."""
    readings = SignalReadings()
    if way not in _METHODS:
        yield readings
        return
    service, method = _METHODS[way]

    async def reports(requests: AsyncIterator[bytes], _context: Any) -> AsyncIterator[bytes]:
        await anext(requests)
        await begin.wait()
        pause = field(2, varint(2, round(seconds * 1e9)) if seconds < 1 else varint(1, round(seconds)))
        yield pause + varint(4, 1)
        async for message in requests:
            readings.report(message)

    async def metrics(requests: AsyncIterator[bytes], _context: Any) -> bytes:
        async for message in requests:
            if begin.is_set():
                readings.streamed(message)
        return b""

    handler = (
        grpc.stream_stream_rpc_method_handler(reports)
        if way == REPORTS
        else grpc.stream_unary_rpc_method_handler(metrics)
    )
    server = grpc.aio.server(options=_UNLIMITED)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {method: handler}),))
    server.add_insecure_port(f"unix:{socket}")
    await server.start()
    try:
        yield readings
    finally:
        await server.stop(0)


async def ask(
    way: str, world: EnvoyWorld, table: CountTable, readings: SignalReadings, labels: dict[str, Labels]
) -> None:
    """Read the counts once; if Envoy counts everything, only the known ones."""
    answers = table.answers()
    if way == EVERYTHING:
        pattern = quote(f"^{statistics.OURS}({statistics.COUNTERS})$")
        path = f"/stats/prometheus?usedonly&filter={pattern}"
        text = await world.admin._request("GET", path)  # noqa: SLF001
    else:
        text = await world.admin.counts()
    readings.page(answers, text, labels)

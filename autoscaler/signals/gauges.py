"""Reads the metrics that gateways do not count: PromQL queries, pages of replicas, and usage from nodes."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType

import aiohttp

from autoscaler.observation import EngineLoad
from autoscaler.policy.config import Metric
from autoscaler.signals import engines, prometheus, usage
from autoscaler.signals.board import Health
from serving import clock, errors
from serving.kube import Key, Kube, node_pages
from serving.objects import Object
from serving.resources.engine import Engine
from serving.resources.formats import cadvisor
from serving.system.network import addresses, http_reading, replica_connections

log = logging.getLogger(__name__)

PAUSE_SECONDS = 10.0
"""Least seconds between readings: kubelets refresh their figures every 10 to 15 s, and an engine's page has a
thousand lines."""
TIMEOUT_SECONDS = 3.0
"""Timeout of a replica's page."""
PAGE_BYTES = 2 * 1024 * 1024
"""Longest page of a replica: an engine's has 1,000 lines of 100 bytes, and all pages are read at once."""
NODE_SECONDS = 4.0
"""Timeout of a node's page: the API server connects to a vanished node for half a minute."""
NODES_AT_ONCE = 16
"""Nodes whose pages are read at the same time: each is in memory as text and as objects."""
QUERIES_AT_ONCE = 32
"""Most queries of one Prometheus at the same time."""
PROMPT_LENGTH = 500.0
"""Assumed tokens of a waiting request, where the engine counts only requests: a short document."""
TYPES = frozenset({"TokenQueueDepth", "TokensPerSecond", "Utilization", "PromQL"})
"""Types of the metrics (`spec.metrics[].type`) that this module reads."""
TOKEN_TYPES = frozenset({"TokenQueueDepth", "TokensPerSecond"})
"""Types that are read from replicas' pages only where no gateway counts the tokens."""
_METRICS_PORT = "prometheus.io/port"
_METRICS_PATH = "prometheus.io/path"
_PORT_DIGITS = 5


@dataclass(frozen=True, slots=True)
class GaugesToRead:
    """The metrics to read for one target, and its Pods."""

    metrics: Sequence[Metric]
    pods: Sequence[Object]


@dataclass(slots=True)
class _LastReading:
    """The last reading of one target."""

    values: dict[str, float] = field(default_factory=dict)
    """By metric name; a metric without a value is absent."""
    health: list[Health] = field(default_factory=list)
    """The health of each source."""
    read_at: float = 0.0
    """Monotonic seconds."""
    token_totals: dict[str, tuple[float, float]] = field(default_factory=dict)
    """By Pod uid, the tokens since the replica started, and the monotonic seconds of the reading."""
    engine_load: EngineLoad | None = None
    """None where no replica has reported tokens in this reading and in an earlier one."""


class Gauges:
    """The values of the last reading, by target and metric."""

    def __init__(
        self, kube: Kube, server: str = "", known_engines: Mapping[str, Engine] = MappingProxyType({})
    ) -> None:
        """Args:
        kube: a client.
        server: base URL of the Prometheus for queries without `serverAddress`.
        known_engines: those whose pages are read, by name.
        """
        self._parser = engines.EnginePageParser(known_engines)
        self._kube = kube
        self._server = server
        self._last: dict[Key, _LastReading] = {}
        """By Autoscaler."""
        self._nodes: dict[str, usage.NodeUsage] = {}
        """The last reading of each node, with which its next one is compared."""
        self._read_at = 0.0
        """Monotonic seconds of the last reading of all targets."""
        self._query_session: aiohttp.ClientSession | None = None
        self._replica_session: aiohttp.ClientSession | None = None
        """Its connections have `sockets.GATEWAY_MARK`, which the gateway port of a Pod may require."""

    async def close(self) -> None:
        """Close the connections."""
        for session in (self._query_session, self._replica_session):
            if session is not None:
                await session.close()

    def last_values(self, key: Key) -> tuple[dict[str, float], list[Health]]:
        """Return the values of a target by metric name, and the health of their sources."""
        last = self._last.get(key)
        if last is None:
            return {}, []
        is_old = clock.monotonic() - last.read_at > usage.OLD_SECONDS
        return ({} if is_old else last.values), last.health

    def engine_load(self, key: Key) -> EngineLoad | None:
        """Return the token load of a target's replicas; None where no replica exports it."""
        last = self._last.get(key)
        if last is None or clock.monotonic() - last.read_at > usage.OLD_SECONDS:
            return None
        return last.engine_load

    async def read(self, wanted: Mapping[Key, GaugesToRead]) -> None:
        """Read the metrics of all targets, unless the last reading is less than `PAUSE_SECONDS` old."""
        now = clock.monotonic()
        self._last = {key: last for key, last in self._last.items() if key in wanted}
        if not wanted or now - self._read_at < PAUSE_SECONDS:
            return
        self._read_at = now
        if self._query_session is None:
            # Without a common limit, as below: servers that do not answer would take the connections of the
            # others, and the wait for a connection counts for the timeout.
            queries = aiohttp.TCPConnector(limit=0, limit_per_host=QUERIES_AT_ONCE)
            self._query_session = http_reading.session(connector=queries)
        if self._replica_session is None:
            connector = aiohttp.TCPConnector(limit=0, socket_factory=replica_connections.new_socket)
            self._replica_session = http_reading.session(connector=connector)
        nodes = asyncio.create_task(self._read_nodes(wanted))
        targets = (self._read_target(key, to_read, nodes) for key, to_read in wanted.items())
        for result in await asyncio.gather(nodes, *targets, return_exceptions=True):
            if isinstance(result, Exception):  # a malformed Pod of one target must not stop the others
                log.error("the metrics of a target were not read", exc_info=result)

    async def _read_target(
        self, key: Key, to_read: GaugesToRead, nodes: Awaitable[Mapping[str, usage.NodeUsage]]
    ) -> None:
        """Read the metrics of one target; `nodes` gives the usage of all nodes by name."""
        last = self._last.setdefault(key, _LastReading())
        failures: dict[str, str] = {}
        waiting_tokens: float | None = None
        engine_load: EngineLoad | None = None
        if TOKEN_TYPES & {metric.type for metric in to_read.metrics}:
            waiting_tokens, engine_load = await self._read_tokens(last, to_read.pods)
        metrics = [metric for metric in to_read.metrics if metric.type in _SOURCES]
        tokens = (waiting_tokens, engine_load)
        reads = (partial(self._value, metric, to_read.pods, nodes, tokens) for metric in metrics)
        results = await asyncio.gather(*map(_or_unavailable, reads))
        values: dict[str, float] = {}
        for metric, value in zip(metrics, results, strict=True):
            source = _SOURCES[metric.type]
            failures.setdefault(source, "")
            if isinstance(value, errors.Unavailable):
                failures[source] = failures[source] or str(value)
            else:
                values[metric.name] = value
        # All together: a decision during the reads must see the values of one reading.
        last.values, last.engine_load, last.read_at = values, engine_load, clock.monotonic()
        last.health = [Health(source, not message, message) for source, message in sorted(failures.items())]

    async def _value(
        self,
        metric: Metric,
        pods: Sequence[Object],
        nodes: Awaitable[Mapping[str, usage.NodeUsage]],
        tokens: tuple[float | None, EngineLoad | None],
    ) -> float:
        """Return the value of a metric.

        Args:
            metric: of one of the types in `TYPES`.
            pods: of the target.
            nodes: gives the usage of all nodes by name.
            tokens: the result of `_read_tokens`.

        Raises:
            errors.Unavailable: the metric has no value.
        """
        if metric.type == "PromQL":
            server = metric.server or self._server
            if not server or self._query_session is None:
                raise errors.Unavailable("no serverAddress is set, and no default Prometheus is configured")
            return await prometheus.query_instant(self._query_session, server, metric.query)
        if metric.type == "Utilization":
            share = usage.share(metric.resource, pods, await nodes)
            if share is None:
                raise errors.Unavailable(
                    f"no node reports the {metric.resource} usage of a replica with a limit"
                )
            return share
        waiting_tokens, engine_load = tokens
        if metric.type == "TokenQueueDepth":
            if waiting_tokens is None:
                raise errors.Unavailable("no replica's metrics page has waiting requests or tokens")
            return waiting_tokens
        if engine_load is None:
            raise errors.Unavailable("no replica's metrics page has had token counters for two readings")
        return engine_load.tokens

    async def _read_tokens(
        self, last: _LastReading, pods: Sequence[Object]
    ) -> tuple[float | None, EngineLoad | None]:
        """Return the waiting tokens and the token load of the replicas, each None where no page has it."""
        pages = await asyncio.gather(*(self._read_replica(pod) for pod in pods))
        now = clock.monotonic()
        read = {
            str(pod["metadata"]["uid"]): page
            for pod, page in zip(pods, pages, strict=True)
            if page is not None
        }
        by_replica = [engines.waiting_tokens(page, PROMPT_LENGTH) for page in read.values()]
        waiting_tokens = [tokens for tokens in by_replica if tokens is not None]
        before = {
            uid: total for uid, total in last.token_totals.items() if now - total[1] <= usage.OLD_SECONDS
        }
        totals = {uid: (page.tokens, now) for uid, page in read.items() if page.tokens is not None}
        uids = {str(pod["metadata"]["uid"]) for pod in pods}
        # A page that does not answer once must not cost the rate of the next one.
        last.token_totals = {uid: total for uid, total in before.items() if uid in uids} | totals
        rates = [
            max(total - before[uid][0], 0.0) / (now - before[uid][1])
            for uid, (total, _) in totals.items()
            if uid in before and now > before[uid][1]
        ]
        load = EngineLoad(
            tokens=sum(rates),
            replicas=len(rates),
            waiting=sum(page.waiting or 0.0 for page in read.values()),
            cache=min(max((page.cache or 0.0 for page in read.values()), default=0.0), 1.0),
            read_at=now,
        )
        return sum(waiting_tokens) if waiting_tokens else None, load if rates else None

    async def _read_replica(self, pod: Object) -> engines.EngineReading | None:
        """Return the content of a replica's metrics page; None without an answer.

        The page is at the annotations `prometheus.io/port` and `prometheus.io/path`, else at `/metrics` of
        the first containerPort.
        """
        address = (pod.get("status") or {}).get("podIP")
        annotations = pod["metadata"].get("annotations") or {}
        ports = [
            p["containerPort"] for c in pod["spec"].get("containers") or () for p in c.get("ports") or ()
        ]
        port = str(annotations.get(_METRICS_PORT) or (ports[0] if ports else ""))
        path = str(annotations.get(_METRICS_PATH, "/metrics"))
        # `80@other.host` is no port, and would lead to another host.
        is_port = port.isdecimal() and len(port) <= _PORT_DIGITS
        if not address or not is_port or path[:1] != "/" or self._replica_session is None:
            return None
        url = f"http://{addresses.authority(address, int(port))}{path}"
        try:
            page = await http_reading.get(
                self._replica_session, url, limit=PAGE_BYTES, seconds=TIMEOUT_SECONDS
            )
        except errors.Unavailable:
            return None
        return self._parser.parse(page.text) if page.status == 200 else None

    async def _read_nodes(self, wanted: Mapping[Key, GaugesToRead]) -> dict[str, usage.NodeUsage]:
        """Return the usage, by name, of the nodes of all targets with a metric `Utilization`, as far as they
        answer in time.
        """
        nodes = {
            str(pod["spec"].get("nodeName", ""))
            for to_read in wanted.values()
            if any(metric.type == "Utilization" for metric in to_read.metrics)
            for pod in to_read.pods
        } - {""}
        at_once = asyncio.Semaphore(NODES_AT_ONCE)
        results = await asyncio.gather(*(self._read_node(node, at_once) for node in sorted(nodes)))
        readings = {
            node: reading for node, reading in zip(sorted(nodes), results, strict=True) if reading is not None
        }
        self._nodes = {node: self._nodes[node] for node in self._nodes.keys() & nodes} | readings
        return readings

    async def _read_node(self, node: str, at_once: asyncio.Semaphore) -> usage.NodeUsage | None:
        """Return the usage of a node; None without an answer in time. Then its replicas have no share, and
        `_value` raises if no other replica of a target has one.
        """
        async with at_once:
            try:
                figures = await node_pages.read(self._kube, node, cadvisor.containers, seconds=NODE_SECONDS)
            except (errors.ApiError, errors.Unavailable, ValueError, RuntimeError):
                return None  # RuntimeError: no thread can be started
        return usage.next_reading(self._nodes.get(node), clock.monotonic(), figures)


async def _or_unavailable(read: Callable[[], Awaitable[float]]) -> float | errors.Unavailable:
    """Return a value, or the error in its place, so that the other metrics of the target are read."""
    try:
        return await read()
    except errors.Unavailable as error:
        return error


_SOURCES = {
    "PromQL": "prometheus",
    "Utilization": "resources",
    "TokenQueueDepth": "replicas",
    "TokensPerSecond": "replicas",
}
"""By type of metric, the name of its source in `status.signals`."""

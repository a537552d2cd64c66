"""Reads the metrics that gateways do not count: PromQL queries, pages of replicas, and usage from nodes."""

import asyncio
import logging
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import aiohttp

from autoscaler.observation import EngineLoad
from autoscaler.policy.config import Metric
from autoscaler.signals import engines, prometheus, usage
from autoscaler.signals.board import Health
from serving import clock, errors
from serving.kube import Key, Kube
from serving.objects import Object
from serving.resources.engine import Engine
from serving.resources.formats import cadvisor
from serving.system.network import addresses, http_reading, replica_connections

log = logging.getLogger(__name__)

PAUSE_SECONDS = 10.0
"""Seconds between readings: kubelets refresh every 10 to 15 s, and an engine's page has a thousand lines."""
TIMEOUT_SECONDS = 3.0
"""Timeout of a replica's page."""
PAGE_BYTES = 2 * 1024 * 1024
"""Longest page of a replica: an engine's has 1,000 lines of 100 bytes, and all pages are read at once."""
NODE_SECONDS = 4.0
"""Timeout of a node's page: the API server connects to a vanished node for half a minute."""
NODE_PAGE_BYTES = 32 * 1024 * 1024
"""Longest page of a node: that of 250 Pods has 25 MB."""
NODES_AT_ONCE = 16
"""Nodes whose pages are read at the same time: each is in memory as text and as objects."""
QUERIES_AT_ONCE = 32
"""Most queries of one Prometheus at the same time."""
PROMPT_LENGTH = 500.0
"""Assumed tokens of a waiting request, where the engine counts only requests: a short document."""
TYPES = frozenset({"TokenQueueDepth", "TokensPerSecond", "Utilization", "PromQL"})
TOKEN_TYPES = frozenset({"TokenQueueDepth", "TokensPerSecond"})
"""Types that are read from replicas' pages only where no gateway counts the tokens."""
_METRICS_PORT = "prometheus.io/port"
_METRICS_PATH = "prometheus.io/path"
_PORT_DIGITS = 5


@dataclass(frozen=True, slots=True)
class Request:
    """The metrics to read for one target, and its Pods."""

    metrics: Sequence[Metric]
    pods: Sequence[Object]


@dataclass(slots=True)
class _Known:
    values: dict[str, float] = field(default_factory=dict)
    health: list[Health] = field(default_factory=list)
    read: float = 0.0
    tokens: dict[str, tuple[float, float]] = field(default_factory=dict)
    """By Pod uid, the total of tokens and the time of its reading."""
    engines: EngineLoad | None = None


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
        self._known: dict[Key, _Known] = {}
        self._nodes: dict[str, usage.NodeUsage] = {}
        """The last reading of each node, with which its next one is compared."""
        self._read = 0.0
        self._session: aiohttp.ClientSession | None = None
        """For queries."""
        self._replicas: aiohttp.ClientSession | None = None
        """For pages of replicas: its connections have the mark that opens a Pod's gateway port."""

    async def close(self) -> None:
        """Close the connections."""
        for session in (self._session, self._replicas):
            if session is not None:
                await session.close()

    def of(self, key: Key) -> tuple[dict[str, float], list[Health]]:
        """Return the values of a target by metric, and the health of their sources."""
        known = self._known.get(key)
        if known is None:
            return {}, []
        is_old = clock.monotonic() - known.read > usage.OLD_SECONDS
        return ({} if is_old else known.values), known.health

    def engine_load(self, key: Key) -> EngineLoad | None:
        """Return the token load of a target's replicas; None where no replica exports it."""
        known = self._known.get(key)
        if known is None or clock.monotonic() - known.read > usage.OLD_SECONDS:
            return None
        return known.engines

    async def read(self, requests: Mapping[Key, Request]) -> None:
        """Read the metrics of all targets, unless the last reading is less than `PAUSE_SECONDS` old."""
        now = clock.monotonic()
        self._known = {key: known for key, known in self._known.items() if key in requests}
        if not requests or now - self._read < PAUSE_SECONDS:
            return
        self._read = now
        if self._session is None:
            # Without a common limit: servers that do not answer would take the connections of the others.
            queries = aiohttp.TCPConnector(limit=0, limit_per_host=QUERIES_AT_ONCE)
            self._session = http_reading.session(connector=queries)
        if self._replicas is None:
            connector = aiohttp.TCPConnector(socket_factory=replica_connections.new_socket)
            self._replicas = http_reading.session(connector=connector)
        nodes = asyncio.create_task(self._usage(requests))
        targets = (self._target(key, request, nodes) for key, request in requests.items())
        for result in await asyncio.gather(nodes, *targets, return_exceptions=True):
            if isinstance(result, Exception):  # a malformed Pod of one target must not stop the others
                log.error("the metrics of a target were not read", exc_info=result)

    async def _target(
        self, key: Key, request: Request, nodes: Awaitable[Mapping[str, usage.NodeUsage]]
    ) -> None:
        known = self._known.setdefault(key, _Known())
        failures: dict[str, str] = {}
        waiting: float | None = None
        load: EngineLoad | None = None
        if TOKEN_TYPES & {metric.type for metric in request.metrics}:
            waiting, load = await self._tokens(known, request.pods)
        metrics = [metric for metric in request.metrics if metric.type in _SOURCES]
        reads = (self._value(metric, request.pods, nodes, (waiting, load)) for metric in metrics)
        read = await asyncio.gather(*map(_or_unavailable, reads))
        values: dict[str, float] = {}
        for metric, value in zip(metrics, read, strict=True):
            source = _SOURCES[metric.type]
            failures.setdefault(source, "")
            if isinstance(value, errors.Unavailable):
                failures[source] = failures[source] or str(value)
            else:
                values[metric.name] = value
        # At once: decisions are made meanwhile, on the values of the last reading.
        known.values, known.engines, known.read = values, load, clock.monotonic()
        known.health = [Health(source, not message, message) for source, message in sorted(failures.items())]

    async def _value(
        self,
        metric: Metric,
        pods: Sequence[Object],
        nodes: Awaitable[Mapping[str, usage.NodeUsage]],
        tokens: tuple[float | None, EngineLoad | None],
    ) -> float:
        """Return the value of a metric.

        Raises:
            errors.Unavailable: it has none.
        """
        if metric.type == "PromQL":
            server = metric.server or self._server
            if not server or self._session is None:
                raise errors.Unavailable("no serverAddress is set, and no default Prometheus is configured")
            return await prometheus.query_instant(self._session, server, metric.query)
        if metric.type == "Utilization":
            share = usage.share(metric.resource, pods, await nodes)
            if share is None:
                raise errors.Unavailable(
                    f"no node reports the {metric.resource} usage of a replica with a limit"
                )
            return share
        waiting, engine = tokens
        if metric.type == "TokenQueueDepth":
            if waiting is None:
                raise errors.Unavailable("no replica's metrics page has waiting requests or tokens")
            return waiting
        if engine is None:
            raise errors.Unavailable("no replica's metrics page has had token counters for two readings")
        return engine.tokens

    async def _tokens(self, known: _Known, pods: Sequence[Object]) -> tuple[float | None, EngineLoad | None]:
        """Return the waiting tokens and the token load of the replicas; None for what no page has."""
        pages = await asyncio.gather(*(self._page(pod) for pod in pods))
        now = clock.monotonic()
        read = {
            str(pod["metadata"]["uid"]): page
            for pod, page in zip(pods, pages, strict=True)
            if page is not None
        }
        queued = [engines.waiting_tokens(page, PROMPT_LENGTH) for page in read.values()]
        waiting = [tokens for tokens in queued if tokens is not None]
        before, known.tokens = (
            known.tokens,
            {uid: (page.tokens, now) for uid, page in read.items() if page.tokens is not None},
        )
        rates = [
            max(total - before[uid][0], 0.0) / (now - before[uid][1])
            for uid, (total, _) in known.tokens.items()
            if uid in before and now > before[uid][1]
        ]
        load = EngineLoad(
            sum(rates),
            len(rates),
            sum(page.waiting or 0.0 for page in read.values()),
            min(max((page.cache or 0.0 for page in read.values()), default=0.0), 1.0),
        )
        return sum(waiting) if waiting else None, load if rates else None

    async def _page(self, pod: Object) -> engines.EngineReading | None:
        address = (pod.get("status") or {}).get("podIP")
        annotations = pod["metadata"].get("annotations") or {}
        ports = [
            p["containerPort"] for c in pod["spec"].get("containers") or () for p in c.get("ports") or ()
        ]
        port = str(annotations.get(_METRICS_PORT) or (ports[0] if ports else ""))
        path = str(annotations.get(_METRICS_PATH, "/metrics"))
        # `80@other.host` is no port, and would lead to another host.
        is_port = port.isdecimal() and len(port) <= _PORT_DIGITS
        if not address or not is_port or path[:1] != "/" or self._replicas is None:
            return None
        url = f"http://{addresses.authority(address, int(port))}{path}"
        try:
            page = await http_reading.get(self._replicas, url, limit=PAGE_BYTES, seconds=TIMEOUT_SECONDS)
        except errors.Unavailable:
            return None
        return self._parser.parse(page.text) if page.status == 200 else None

    async def _usage(self, requests: Mapping[Key, Request]) -> dict[str, usage.NodeUsage]:
        """Return the usage of every node that answers in time."""
        nodes = {
            str(pod["spec"].get("nodeName", ""))
            for request in requests.values()
            if any(metric.type == "Utilization" for metric in request.metrics)
            for pod in request.pods
        } - {""}
        at_once = asyncio.Semaphore(NODES_AT_ONCE)
        read = await asyncio.gather(*(self._node(node, at_once) for node in sorted(nodes)))
        readings = {
            node: reading for node, reading in zip(sorted(nodes), read, strict=True) if reading is not None
        }
        self._nodes = {node: self._nodes[node] for node in self._nodes.keys() & nodes} | readings
        return readings

    async def _node(self, node: str, at_once: asyncio.Semaphore) -> usage.NodeUsage | None:
        """Return the usage of a node; None where it does not answer, which `health` reports as unknown shares
        of its replicas.
        """
        page = bytearray()
        async with at_once:
            try:
                async with asyncio.timeout(NODE_SECONDS):
                    async for part in self._kube.stream(f"/api/v1/nodes/{node}/proxy/{cadvisor.PATH}"):
                        page += part
                        if len(page) > NODE_PAGE_BYTES:
                            return None
                # In a thread: a page of thousands of lines takes longer than a tick may wait.
                figures = await asyncio.to_thread(_containers, page)
            except (errors.ApiError, errors.Unavailable, TimeoutError, ValueError, RuntimeError):
                return None  # RuntimeError: no thread can be started
        return usage.next_reading(self._nodes.get(node), clock.monotonic(), figures)


async def _or_unavailable(value: Awaitable[float]) -> float | errors.Unavailable:
    try:
        return await value
    except errors.Unavailable as error:
        return error


def _containers(page: bytearray) -> dict[cadvisor.ContainerKey, cadvisor.ContainerUsage]:
    return cadvisor.containers(page.decode())


_SOURCES = {
    "PromQL": "prometheus",
    "Utilization": "resources",
    "TokenQueueDepth": "replicas",
    "TokensPerSecond": "replicas",
}
"""By type of metric, the name of its source in `status.signals`."""

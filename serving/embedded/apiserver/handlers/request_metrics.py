"""Counts requests, under the names of kube-apiserver: what `GET /metrics` of the API server shows.

https://kubernetes.io/docs/reference/instrumentation/metrics/.
"""

from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from serving.embedded.apiserver import status_errors
from serving.embedded.apiserver.discovery import api_groups
from serving.embedded.apiserver.requests.paths import ResourcePath
from serving.embedded.apiserver.storage.store import ObjectStore
from serving.resources import kinds

LABELS = ("verb", "group", "version", "resource", "subresource")
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Seconds. Most requests take less than kube-apiserver's first bucket of 5 ms."""
_VERBS = {"GET": "GET", "HEAD": "GET", "POST": "POST", "PUT": "PUT", "PATCH": "PATCH", "DELETE": "DELETE"}
_COLLECTION_VERBS = {"GET": "LIST", "HEAD": "LIST", "DELETE": "DELETECOLLECTION"}
_WATCH = "WATCH"


class RequestLabels(NamedTuple):
    """The labels of a request; `resource` is empty where the path is that of no resource."""

    verb: str
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""

    @property
    def is_long(self) -> bool:
        """Whether the client decides how long the request takes."""
        return self.verb == _WATCH or self.subresource == "log"


def labels(method: str, resource: ResourcePath | None, *, watches: bool) -> RequestLabels:
    """Return a request's labels: values that are known beforehand, so that clients cannot add any."""
    verb = _VERBS.get(method, "OTHER")
    if resource is None or (resource.group, resource.version, resource.plural) not in _served():
        return RequestLabels(verb)
    if resource.name is None:
        verb = _WATCH if watches and verb == "GET" else _COLLECTION_VERBS.get(method, verb)
    subresource = resource.subresource or ""
    known = subresource if subresource in ("", "log", "scale", "status") else "other"
    return RequestLabels(verb, resource.group, resource.version, resource.plural, known)


@cache
def _served() -> frozenset[tuple[str, str, str]]:
    return frozenset((kind.group, kind.version, kind.plural) for kind in api_groups.SERVED)


class RequestMetrics:
    """The API server's metrics."""

    def __init__(self, store: ObjectStore) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "apiserver_request", "Answered requests.", (*LABELS, "code"), registry=self._registry
        )
        self._seconds = Histogram(
            "apiserver_request_duration_seconds",
            "From the headers of a request to the end of its answer, without watches and logs.",
            LABELS,
            buckets=BUCKETS,
            registry=self._registry,
        )
        self._long = Gauge(
            "apiserver_longrunning_requests",
            "Watches and logs that are open.",
            LABELS,
            registry=self._registry,
        )
        self._counters: dict[tuple[RequestLabels, int], Counter] = {}
        self._histograms: dict[RequestLabels, Histogram] = {}
        self._registry.register(_StoredObjects(store))
        ProcessCollector(registry=self._registry)

    def begin(self, request: RequestLabels) -> None:
        """Count a request that is long as open."""
        if request.is_long:
            self._long.labels(*request).inc()

    def end(self, request: RequestLabels, code: int, seconds: float) -> None:
        """Count an answered request."""
        counter = self._counters.get((request, code))
        if counter is None:
            counter = self._counters[request, code] = self._requests.labels(*request, code)
        counter.inc()
        if request.is_long:
            self._long.labels(*request).dec()
            return
        histogram = self._histograms.get(request)
        if histogram is None:
            histogram = self._histograms[request] = self._seconds.labels(*request)
        histogram.observe(seconds)

    def page(self) -> bytes:
        """Return the page in Prometheus's text format."""
        return generate_latest(self._registry)


class _StoredObjects(Collector):
    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def collect(self) -> Iterator[GaugeMetricFamily]:
        family = GaugeMetricFamily("apiserver_storage_objects", "Stored objects.", labels=("resource",))
        for kind in kinds.ALL:
            family.add_metric([status_errors.resource(kind)], len(self._store.objects(kind)))
        yield family

"""Counts requests, under the names of kube-apiserver, for `GET /metrics` of the API server.

https://kubernetes.io/docs/reference/instrumentation/metrics/.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Container, Iterable, Iterator
from itertools import accumulate
from typing import NamedTuple

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from serving.embedded.apiserver import status_errors
from serving.embedded.apiserver.discovery import api_groups
from serving.embedded.apiserver.requests import paths
from serving.embedded.apiserver.requests.paths import Address, ResourcePath
from serving.embedded.apiserver.storage.store import ObjectStore
from serving.resources.kinds import Kind

LABELS = ("verb", "group", "version", "resource", "subresource")
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Seconds. Most requests take less than kube-apiserver's first bucket of 5 ms."""
_VERBS = {"GET": "GET", "HEAD": "GET", "POST": "POST", "PUT": "PUT", "PATCH": "PATCH", "DELETE": "DELETE"}
_COLLECTION_VERBS = {"GET": "LIST", "HEAD": "LIST", "DELETE": "DELETECOLLECTION"}
_WATCH = "WATCH"


ResourceType = tuple[str, str, str]
"""Group, version and plural of a kind."""


class RequestLabels(NamedTuple):
    """The labels of a request; `resource` is empty where the path is that of no resource."""

    verb: str
    """As of kube-apiserver: GET, LIST, WATCH, POST, PUT, PATCH, DELETE, DELETECOLLECTION or OTHER."""
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""

    @property
    def is_long(self) -> bool:
        """Whether the client decides how long the request takes: a watch or a log."""
        return self.verb == _WATCH or self.subresource == "log"


def labels(
    method: str, resource: ResourcePath | None, served: Container[ResourceType], *, watches: bool
) -> RequestLabels:
    """Return a request's labels; `served` are those of the served kinds.

    Every value is one of a fixed set, so that requests for arbitrary paths do not add series without bound.
    """
    verb = _VERBS.get(method, "OTHER")
    if resource is None or (resource.group, resource.version, resource.plural) not in served:
        return RequestLabels(verb)
    if resource.name is None:
        verb = _WATCH if watches and verb == "GET" else _COLLECTION_VERBS.get(method, verb)
    subresource = resource.subresource or ""
    subresource_label = subresource if subresource in ("", "log", "scale", "status") else "other"
    return RequestLabels(verb, resource.group, resource.version, resource.plural, subresource_label)


def resource_types(kinds: Iterable[Kind]) -> frozenset[ResourceType]:
    """Return the type of the resources of each kind."""
    return frozenset((kind.group, kind.version, kind.plural) for kind in kinds)


class RequestSeries:
    """The counts of the requests with the same labels, which only the event loop changes.

    The counts are plain numbers: the metrics of prometheus_client have locks, and would double the cost of a
    small read.
    """

    __slots__ = ("buckets", "codes", "is_long", "open", "seconds")

    def __init__(self, *, is_long: bool) -> None:
        self.is_long = is_long
        self.codes: Counter[int] = Counter()
        """Requests by status code; 0 is a request without a response."""
        self.buckets = [0] * (len(BUCKETS) + 1)
        """Requests by duration: BUCKETS[i - 1] < seconds <= BUCKETS[i]; the last item counts longer ones."""
        self.seconds = 0.0
        """The sum of the durations."""
        self.open = 0
        """Long requests whose response has not ended."""

    def begin(self) -> None:
        if self.is_long:
            self.open += 1

    def end(self, code: int, seconds: float) -> None:
        """Count a request that has ended, after `seconds`; a code of 0 means that it had no response."""
        self.codes[code] += 1
        if self.is_long:
            self.open -= 1
            return
        self.buckets[bisect_left(BUCKETS, seconds)] += 1
        self.seconds += seconds


_AddressKey = tuple[str, Kind, bool, str | None, bool]
"""Verb, kind, whether a collection is addressed, subresource, whether the query asks for a watch.

A plain tuple, as it is made for each request.
"""


class RequestMetrics(Collector):
    """The API server's metrics."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._served = resource_types(api_groups.served_kinds(store.kinds))
        self._series: dict[RequestLabels, RequestSeries] = {}
        self._by_address: dict[_AddressKey, RequestSeries] = {}
        """The series of requests for stored kinds, by which `of` avoids computing their labels again."""
        self._registry = CollectorRegistry()
        self._registry.register(self)
        ProcessCollector(registry=self._registry)

    def of(self, method: str, address: Address | None, path: str, *, watches: bool) -> RequestSeries:
        """Return the series of a request; `address` is `paths.parse(path)`."""
        if address is None:
            return self._labelled(labels(method, paths.split(path), self._served, watches=watches))
        verb = _VERBS.get(method, "OTHER")
        key = (verb, address.kind, address.name is None, address.subresource, watches)
        series = self._by_address.get(key)
        if series is None:
            resource = paths.resource_path(address)
            request_labels = labels(method, resource, self._served, watches=watches)
            series = self._by_address[key] = self._labelled(request_labels)
        return series

    def _labelled(self, request: RequestLabels) -> RequestSeries:
        if request not in self._series:
            self._series[request] = RequestSeries(is_long=request.is_long)
        return self._series[request]

    def page(self) -> bytes:
        """Return the page in Prometheus's text format."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """Yield the requests by their labels, and the number of stored objects."""
        requests = CounterMetricFamily("apiserver_request", "Answered requests.", labels=(*LABELS, "code"))
        seconds = HistogramMetricFamily(
            "apiserver_request_duration_seconds",
            "From the headers of a request to the end of its answer, without watches and logs.",
            labels=LABELS,
        )
        long = GaugeMetricFamily(
            "apiserver_longrunning_requests", "Watches and logs that are open.", labels=LABELS
        )
        for request, series in self._series.items():
            for code, count in series.codes.items():
                requests.add_metric((*request, str(code)), count)
            if series.is_long:
                long.add_metric(request, series.open)
            else:
                bounds = [*map(str, BUCKETS), "+Inf"]
                cumulative_counts = accumulate(series.buckets)
                buckets = list(zip(bounds, cumulative_counts, strict=True))
                seconds.add_metric(request, buckets, series.seconds)
        yield from (requests, seconds, long)
        objects = GaugeMetricFamily("apiserver_storage_objects", "Stored objects.", labels=("resource",))
        for kind in self._store.kinds.all:
            objects.add_metric((status_errors.resource(kind),), len(self._store.objects(kind)))
        yield objects

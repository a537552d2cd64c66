"""The selection of Envoy's statistics of our clusters, and the parser of its statistics page.

Envoy keeps only used statistics, and only of clusters with requests, so that a reading costs as much as there
is to report (docs/decisions/gateway-statistics.md).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from serving.router.envoy import token_accounting

OURS = r"cluster\.[^.]*/[^.]*\."
"""The beginning of a statistic of one of our clusters, as an RE2 pattern: only their names have a slash."""
COUNTERS = (
    "upstream_rq_(total|active|pending_active|pending_failure_eject|pending_overflow|active_overflow"
    "|cancelled|retry|time|[1-5]xx)|upstream_cx_none_healthy"
)
"""The other part of the names of the kept statistics of our clusters."""
_OTHERS = (
    r"(cluster\.slipway-gateway|cluster_manager|control_plane|http|listener|listener_manager|runtime|server)"
    r"\..*"
)
"""Statistics for people: few, whatever the number of services."""

CLASSES = ("1xx", "2xx", "3xx", "4xx", "5xx")
"""Classes of status codes."""
BOUNDS_MS = (
    1.0,
    2.5,
    5.0,
    10.0,
    25.0,
    50.0,
    100.0,
    250.0,
    500.0,
    1_000.0,
    2_500.0,
    5_000.0,
    10_000.0,
    30_000.0,
    60_000.0,
    300_000.0,
)
"""Upper bounds of durations, from a small model's response to a long generation. Envoy counts whole
milliseconds, rounded down, so a bound below 1 would be useless."""

FILTER = r"^cluster\.[^.]*/"
"""The beginning of the statistics of our clusters."""
FILTER_COUNTS = FILTER + r"[^.]*\.upstream_(rq_([^t]|to)|cx)"
"""Selects the statistics except durations, which are five sixths of all."""
FILTER_DURATIONS = FILTER + r"[^.]*\.upstream_rq_time"
"""Selects the durations."""

_PREFIX = "envoy_cluster_upstream_"
_HISTOGRAM = f"{_PREFIX}rq_time_"
_FIRST_BUCKET = f',le="{BOUNDS_MS[0]:g}"}} '
_CLUSTER_LABEL = "envoy_cluster_name="
_HISTOGRAM_LINES = len(BOUNDS_MS) + 3
"""One for each bound, the bucket without an upper bound, the sum and the count."""


@dataclass
class Statistics:
    """The statistics of one cluster since it was added."""

    counts: dict[str, int] = field(default_factory=dict)
    """By Envoy's names without `upstream_`; answers by class are `1xx` to `5xx`."""
    durations: str = ""
    """Envoy's text of the histogram, for `parse_durations`; empty before the first answer."""


@dataclass(frozen=True)
class Durations:
    """A histogram of durations."""

    at_most: tuple[str, ...]
    """Numbers of requests that took at most each of `BOUNDS_MS`, and the total."""
    seconds: float
    """The sum of all durations."""


def bootstrap() -> dict[str, Any]:
    """Return the part of the bootstrap that selects the statistics."""
    kept = f"{OURS}({COUNTERS})|{_OTHERS}|{token_accounting.STATISTICS}"
    return {
        "stats_config": {
            # Envoy caches the result of one pattern, but compares prefixes at each count of each request.
            "stats_matcher": {"inclusion_list": {"patterns": [{"safe_regex": {"regex": kept}}]}},
            "histogram_bucket_settings": [
                {"match": {"prefix": "cluster."}, "buckets": list(BOUNDS_MS)},
                *token_accounting.histogram_buckets(),
            ],
        },
        "deferred_stat_options": {"enable_deferred_creation_stats": True},
    }


def parse(text: str) -> dict[str, Statistics]:
    """Return the statistics on Envoy's pages in Prometheus's format, by cluster.

    Args:
        text: the page of counts, and behind it that of durations, if it was read.

    Raises:
        ValueError: the text is not such a page.
    """
    plain, _, histograms = text.partition(f"# TYPE {_HISTOGRAM.removesuffix('_')} histogram\n")
    clusters: dict[str, Statistics] = {}
    names: dict[str, str] = {}
    for line in plain.splitlines():
        if line.startswith("#") or not line:
            continue
        *head, cluster, value = line.split('"')
        start = '"'.join(head)
        name = names.get(start) or names.setdefault(start, _name(start))
        if cluster not in clusters:
            clusters[cluster] = Statistics()
        clusters[cluster].counts[name] = int(value[2:])
    for cluster, block in _blocks(histograms):
        clusters.setdefault(cluster, Statistics()).durations = block
    return clusters


def _name(start: str) -> str:
    """Return our name of a counter from the beginning of its line."""
    if not start.startswith(_PREFIX) or not start.endswith(_CLUSTER_LABEL):
        raise ValueError(f"not a statistic of a cluster: {start!r}")
    name, _, labels = start.removeprefix(_PREFIX).removesuffix(_CLUSTER_LABEL).partition("{")
    return f"{labels.split(chr(34))[1]}xx" if labels else name.removeprefix("rq_")


def _blocks(text: str) -> Iterator[tuple[str, str]]:
    """Yield the clusters and their histograms."""
    start, at = 0, text.find(_FIRST_BUCKET)
    while at >= 0:
        cluster = text[start:at].partition('"')[2].removesuffix('"')
        at = text.find(_FIRST_BUCKET, at + 1)
        end = text.rfind("\n", 0, at) + 1 if at >= 0 else len(text)
        yield cluster, text[start:end]
        start = end


def parse_durations(block: str) -> Durations:
    """Return the histogram in `Statistics.durations`.

    Raises:
        ValueError: the text is not a histogram.
    """
    if not block:
        return Durations(("0",) * (len(BOUNDS_MS) + 1), 0.0)
    values = block.split()[1::2]
    if len(values) != _HISTOGRAM_LINES:
        raise ValueError(f"a histogram must have {_HISTOGRAM_LINES} lines, got {len(values)}")
    return Durations(tuple(values[:-2]), float(values[-2]) / 1000)


def received(counts: Mapping[str, int]) -> int:
    """Return the number of requests that a cluster has received, each counted once whatever its retries.

    Each attempt has a connection (`rq_total`), waits for one, or ended before it had one; every attempt but
    the first is counted as a retry.
    """
    attempts = (
        "total",
        "pending_active",
        "pending_failure_eject",
        "pending_overflow",
        "active_overflow",
        "cancelled",
    )
    return sum(counts.get(name, 0) for name in (*attempts, "cx_none_healthy")) - counts.get("retry", 0)


def answered(counts: Mapping[str, int]) -> dict[str, int]:
    """Return the number of answers by class (`2xx`, ...).

    A request above a predictor's limit is 503 in Envoy's statistics, and 429 to its client.
    """
    by_class = {code: counts[code] for code in CLASSES if code in counts}
    if refused := counts.get("active_overflow", 0):
        by_class["5xx"] = by_class.get("5xx", 0) - refused
        by_class["4xx"] = by_class.get("4xx", 0) + refused
    return by_class


def in_flight(counts: Mapping[str, int]) -> int:
    """Return the number of requests without a response yet."""
    return counts.get("active", 0) + counts.get("pending_active", 0)

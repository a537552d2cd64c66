"""What Envoy counts of our clusters, and how its answer is read (docs/decisions/gateway-statistics.md). Pure.

Of a cluster without requests it has no statistics at all, and of the others only those that are used: a reading costs
what there is to read.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

OURS = r"cluster\.[^.]*/[^.]*\."
"""The beginning of a statistic of one of our clusters, as Envoy's RE2 reads it: their names have a slash."""
COUNTERS = (
    "upstream_rq_(total|active|pending_active|pending_failure_eject|pending_overflow|cancelled|retry|time|[1-5]xx)"
    "|upstream_cx_none_healthy"
)
"""The rest of those that are kept."""
_OTHERS = r"(cluster\.slipway-gateway|cluster_manager|control_plane|http|listener|listener_manager|runtime|server)\..*"
"""Few, whatever the number of services; for people."""

BOUNDS_MS = (
    1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1_000.0, 2_500.0, 5_000.0, 10_000.0, 30_000.0, 60_000.0,
    300_000.0,
)  # fmt: skip
"""Upper bounds of durations: from a small model's answer to a long generation. Envoy counts whole milliseconds, rounded
down, so a bound of less would say nothing."""

FILTER = r"^cluster\.[^.]*/"
"""Of the statistics of our clusters alone."""
FILTER_COUNTS = FILTER + r"[^.]*\.upstream_(rq_([^t]|to)|cx)"
"""Of those without durations, which are five sixths of them."""

_PREFIX = "envoy_cluster_upstream_"
_HISTOGRAM = f"{_PREFIX}rq_time_"
_FIRST = f',le="{BOUNDS_MS[0]:g}"}} '
_CLUSTER = "envoy_cluster_name="
_LINES = len(BOUNDS_MS) + 3
"""Of a histogram: its bounds, the one without end, the sum and the count."""


@dataclass
class Statistics:
    """Of one cluster, since this Envoy has it."""

    counts: dict[str, int] = field(default_factory=dict)
    """By Envoy's names, without `upstream_`; answers by class are `1xx` to `5xx`."""
    durations: str = ""
    """Envoy's text of the histogram, read by `durations`; empty before the first answer."""


@dataclass(frozen=True)
class Durations:
    """Answers by how long they took."""

    at_most: tuple[str, ...]
    """How many took at most each of `BOUNDS_MS`, and how many there were."""
    seconds: float
    """All together."""


def bootstrap() -> dict[str, Any]:
    """Return the part of the bootstrap that says what is counted."""
    kept = f"{OURS}({COUNTERS})|{_OTHERS}"
    return {
        "stats_config": {
            # One expression, whose answers Envoy remembers: prefixes it compares at each count of each request.
            "stats_matcher": {"inclusion_list": {"patterns": [{"safe_regex": {"regex": kept}}]}},
            "histogram_bucket_settings": [
                {"match": {"prefix": "cluster."}, "buckets": list(BOUNDS_MS)},
            ],
        },
        "deferred_stat_options": {"enable_deferred_creation_stats": True},
    }


def read(text: str) -> dict[str, Statistics]:
    """Return the statistics on Envoy's page in Prometheus's form, by cluster; of those that have any.

    Raises:
        ValueError: it is no such page.
    """
    plain, _, histograms = text.partition(f"# TYPE {_HISTOGRAM.removesuffix('_')} histogram\n")
    found: dict[str, Statistics] = {}
    names: dict[str, str] = {}
    for line in plain.splitlines():
        if line.startswith("#") or not line:
            continue
        *head, cluster, value = line.split('"')
        start = '"'.join(head)
        name = names.get(start) or names.setdefault(start, _name(start))
        if cluster not in found:
            found[cluster] = Statistics()
        found[cluster].counts[name] = int(value[2:])
    for cluster, block in _blocks(histograms):
        found.setdefault(cluster, Statistics()).durations = block
    return found


def _name(start: str) -> str:
    """Our name for what is counted, by the beginning of its lines."""
    if not start.startswith(_PREFIX) or not start.endswith(_CLUSTER):
        raise ValueError(f"no statistic of a cluster: {start!r}")
    name, _, labels = start.removeprefix(_PREFIX).removesuffix(_CLUSTER).partition("{")
    return f"{labels.split(chr(34))[1]}xx" if labels else name.removeprefix("rq_")


def _blocks(text: str) -> Iterator[tuple[str, str]]:
    """The histograms, by cluster."""
    start, at = 0, text.find(_FIRST)
    while at >= 0:
        cluster = text[start:at].partition('"')[2].removesuffix('"')
        at = text.find(_FIRST, at + 1)
        end = text.rfind("\n", 0, at) + 1 if at >= 0 else len(text)
        yield cluster, text[start:end]
        start = end


def durations(block: str) -> Durations:
    """Return what `Statistics.durations` says.

    Raises:
        ValueError: it says something else.
    """
    if not block:
        return Durations(("0",) * (len(BOUNDS_MS) + 1), 0.0)
    values = block.split()[1::2]
    if len(values) != _LINES:
        raise ValueError(f"a histogram of {len(values)} lines, not {_LINES}")
    return Durations(tuple(values[:-2]), float(values[-2]) / 1000)


def received(counts: Mapping[str, int]) -> int:
    """Return how many requests have come to a cluster, each once, however often it was sent.

    Each attempt is on a connection (`rq_total`), waits for one, or came to an end before it had one; each attempt but
    the first was counted as a retry.
    """
    attempts = ("total", "pending_active", "pending_failure_eject", "pending_overflow", "cancelled")
    return sum(counts.get(name, 0) for name in (*attempts, "cx_none_healthy")) - counts.get("retry", 0)


def in_flight(counts: Mapping[str, int]) -> int:
    """Return how many have no answer yet."""
    return counts.get("active", 0) + counts.get("pending_active", 0)

"""The selection of Envoy's statistics of our clusters, and the parser of its statistics page.

Envoy keeps only used statistics, and only of clusters with requests, so that a reading costs as much as there
is to report (docs/decisions/gateway-statistics.md). Answers are counted by Envoy's module (`count_table.py`).
"""

from collections.abc import Mapping
from typing import Any

OURS = r"cluster\.[^.]*/[^.]*\."
"""The beginning of a statistic of one of our clusters, as an RE2 pattern: only their names have a slash."""
COUNTERS = (
    "upstream_rq_(total|active|pending_active|pending_failure_eject|pending_overflow|active_overflow"
    "|cancelled|retry)|upstream_cx_none_healthy"
)
"""The other part of the names of the kept statistics of our clusters."""
_OTHERS = (
    r"(cluster\.slipway-gateway|cluster_manager|control_plane|listener_manager|runtime|server)\..*"
    r"|(http|listener)\..*\.downstream_cx_(active|destroy.*|idle_timeout|overflow|overload_reject|total)"
    r"|http\..*\.downstream_rq_(active|failed_path_normalization|idle_timeout|overload_close|timeout)"
    r"|http\..*\.downstream_rq_[rt]x_reset"
)
"""Statistics for people: as few with a thousand services as with one. A request changes only the number of
requests in flight."""

FILTER = r"^cluster\.[^.]*/"
"""Selects the statistics of our clusters."""

_PREFIX = "envoy_cluster_upstream_"
_CLUSTER_LABEL = "{envoy_cluster_name="


def bootstrap() -> dict[str, Any]:
    """Return the part of the bootstrap that selects the statistics."""
    kept = f"{OURS}({COUNTERS})|{_OTHERS}"
    return {
        "stats_config": {
            # Envoy caches the result of one pattern, but compares prefixes at each count of each request.
            "stats_matcher": {"inclusion_list": {"patterns": [{"safe_regex": {"regex": kept}}]}},
        },
        "deferred_stat_options": {"enable_deferred_creation_stats": True},
    }


def parse(text: str) -> dict[str, dict[str, int]]:
    """Return the counts on Envoy's page in Prometheus's format, by cluster and by Envoy's names.

    The names are without `upstream_` and `rq_`. Counts are since the cluster was added.

    Raises:
        ValueError: the text is not such a page.
    """
    clusters: dict[str, dict[str, int]] = {}
    names: dict[str, str] = {}  # by the beginning of a line, which all clusters share
    for line in text.splitlines():
        if line.startswith("#") or not line:
            continue
        # envoy_cluster_upstream_rq_total{envoy_cluster_name="default/digits/8080"} 5
        *head, cluster, value = line.split('"')
        start = '"'.join(head)
        name = names.get(start) or names.setdefault(start, _name(start))
        clusters.setdefault(cluster, {})[name] = int(value[2:])  # behind the brace and the space
    return clusters


def _name(start: str) -> str:
    """Return our name of a count from the beginning of its line."""
    if not start.startswith(_PREFIX) or not start.endswith(_CLUSTER_LABEL):
        raise ValueError(f"not a statistic of a cluster: {start!r}")
    return start.removeprefix(_PREFIX).removesuffix(_CLUSTER_LABEL).removeprefix("rq_")


def received(counts: Mapping[str, int]) -> int:
    """Return the number of requests that a cluster has received, each counted once with all its retries.

    Each attempt has a connection (`rq_total`), waits for one, or ended before it had one; every attempt but
    the first is counted as a retry, of the cluster to which it goes. So a request with attempts at several
    clusters is one of the first.
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


def in_flight(counts: Mapping[str, int]) -> int:
    """Return the number of requests whose response has not ended."""
    return counts.get("active", 0) + counts.get("pending_active", 0)

"""The activator's metrics: how many requests wait and for how long, refusals, and the phases of wakes."""

from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from serving import metrics
from serving.resources.formats.metrics_text import family
from serving.resources.metric_names import ACTIVATOR, HELD, HELD_SECONDS, HELD_TOTAL
from serving.router.activator.wake import Phase
from serving.router.metrics.labels import Labels


class ActivatorMetrics:
    """The page of one activator."""

    def __init__(self, gateway: str, waiting: Callable[[], Iterable[tuple[Labels, int]]]) -> None:
        """Describe one activator.

        Args:
            gateway: the name of its gateway.
            waiting: returns the number of waiting requests by revision.
        """
        self._gateway = gateway
        self._waiting = waiting
        self._registry = registry = CollectorRegistry()
        total = Gauge("slipway_activator_held_requests", "Requests that wait now.", registry=registry)
        total.set_function(lambda: sum(count for _, count in waiting()))
        self._ever_held: set[Labels] = set()
        """Revisions that the gauge `HELD` has even at 0."""
        self._held = Counter(
            HELD_TOTAL, "Requests that arrived while no replica was ready.", Labels._fields, registry=registry
        )
        self._held_seconds = Histogram(
            HELD_SECONDS,
            "Time that such requests waited before a replica got them.",
            Labels._fields,
            registry=registry,
            buckets=metrics.START_BUCKETS,
        )
        self._waits = Histogram(
            "slipway_activator_wait_seconds",
            "Time from a request's arrival to the beginning of its response.",
            registry=registry,
            buckets=metrics.START_BUCKETS,
        )
        self._refused = Counter(
            "slipway_activator_refused_requests",
            "Requests that the activator refused.",
            ["reason"],
            registry=registry,
        )
        self._wakes = Histogram(
            "slipway_wake_phase_seconds",
            "Phases of wakes: they add up to the time that the first request at zero waited.",
            ["namespace", "autoscaler", "phase"],
            registry=registry,
            buckets=metrics.START_BUCKETS,
        )

    def page(self) -> str:
        """Return the page, in Prometheus's text format."""
        counts: dict[Labels, int] = {}  # a removed backend, and one that replaced it, have the same labels
        for labels, count in self._waiting():
            counts[labels] = counts.get(labels, 0) + count
        # As text, as prometheus_client refuses a gauge with the name of the counter without `_total`.
        held = [
            f"{HELD}{{{labels.text}}} {count}\n"
            for labels, count in counts.items()
            if count or labels in self._ever_held
        ]
        return "".join(
            (
                generate_latest(self._registry).decode(),
                family(HELD, "gauge", "Requests that wait for a replica now.", held),
                family(
                    ACTIVATOR,
                    "gauge",
                    "The activator of this page.",
                    [f'{ACTIVATOR}{{activator="{self._gateway}"}} 1\n'],
                ),
            )
        )

    def held(self, labels: Labels) -> None:
        """Count a request that arrived while no replica was ready."""
        self._ever_held.add(labels)
        self._held.labels(*labels).inc()

    def released(self, labels: Labels, seconds: float) -> None:
        """Count a held request that went to a replica, `seconds` after its arrival."""
        self._held_seconds.labels(*labels).observe(seconds)

    def forget(self, labels: Labels) -> None:
        """Remove a revision from the page."""
        self._ever_held.discard(labels)
        self._held.remove(*labels)
        self._held_seconds.remove(*labels)

    def answered(self, seconds: float) -> None:
        """Count a request whose response began `seconds` after its arrival."""
        self._waits.observe(seconds)

    def refused(self, reason: str) -> None:
        """Count a refused request."""
        self._refused.labels(reason).inc()

    def woken(self, namespace: str, autoscaler: str, phases: Iterable[Phase]) -> None:
        """Count a wake by the name and the seconds of each phase."""
        for name, seconds in phases:
            self._wakes.labels(namespace, autoscaler, name).observe(max(seconds, 0.0))

"""The readings of all scale targets (load, tokens, percentiles, gauges), of which an observation is made.

Metrics pages are read at each tick, and gauges beside the ticks. This module decides nothing.
"""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace

from autoscaler.observation import Load, Observation, Percentile, Replicas
from autoscaler.settings import AutoscalerSettings
from autoscaler.signals import gauges, held_requests
from autoscaler.signals.board import Board, Health
from autoscaler.signals.exposition import ScaleTargetName
from autoscaler.signals.pages import Pages
from autoscaler.signals.token_board import TokenBoard
from autoscaler.state.target_state import TargetState
from autoscaler.targets import ScaleTarget
from serving import clock
from serving.kube import Informer, Key, Kube
from serving.objects import Object
from serving.resources import leases
from serving.resources.engine import Engine
from serving.settings import ActivatorSettings

HELD_SECONDS = 0.001
"""Seconds of the load that `Readings._load` makes for held requests between two readings; their arrivals are
in the next reading."""


class Readings:
    """The last readings of every scale target."""

    def __init__(
        self,
        kube: Kube,
        gateways: Informer,
        settings: AutoscalerSettings,
        *,
        prometheus: str,
        known_engines: Mapping[str, Engine],
        hold_seconds: float = ActivatorSettings.deadline_seconds,
    ) -> None:
        """Take the sources.

        Args:
            kube: for the usage of nodes, and the pages of replicas.
            gateways: the Leases of the gateways.
            settings: of the autoscaler.
            prometheus: base URL of the server of queries that name none.
            known_engines: by name.
            hold_seconds: longest time for which an activator holds a request.
        """
        self._gateways, self._settings = gateways, settings
        """The Leases of the gateways, and the settings of the autoscaler."""
        self._renewals = leases.Renewals()
        self._hold_seconds = hold_seconds
        self._board = Board()
        self._tokens = TokenBoard()
        self._gauges = gauges.Gauges(kube, prometheus, known_engines)

    async def close(self) -> None:
        """Close the connections."""
        await self._gauges.close()

    async def tick(
        self,
        pages: Pages,
        targets: Mapping[Key, ScaleTargetName],
        timed: AbstractSet[Key],
    ) -> None:
        """Read all metrics pages.

        Args:
            pages: of the gateways and activators.
            targets: names of the scale targets, by Autoscaler.
            timed: Autoscalers with a metric of the type Latency, for which response times are read too.
        """
        known = set(targets.values())
        with_percentiles = {targets[key] for key in timed}
        read = await pages.read(with_percentiles)
        now, live = clock.monotonic(), self._live()
        unix_now = clock.now().timestamp()
        self._board.tick(
            read.readings, live, known, read.held, now, unix_now=unix_now, problems=read.problems
        )
        self._board.retain(known)
        self._tokens.tick(read.readings, now)

    async def read_gauges(
        self, targets: Mapping[Key, ScaleTargetName], states: Mapping[Key, TargetState]
    ) -> None:
        """Read the metrics that gateways do not count, if the last values are old enough. No tick waits for
        these reads.

        Args:
            targets: names of the scale targets, by Autoscaler.
            states: states of the Autoscalers, with their metrics and Pods.
        """
        wanted: dict[Key, gauges.GaugesToRead] = {}
        for key, state in states.items():
            if not state.config.metrics:
                continue
            target = targets.get(key)
            are_counted = target is not None and self._tokens.waiting_tokens(target) is not None
            # Tokens that gateways count need not be read from replicas.
            types = gauges.TYPES - gauges.TOKEN_TYPES if are_counted else gauges.TYPES
            metrics = [metric for metric in state.config.metrics if metric.type in types]
            if metrics:
                wanted[key] = gauges.GaugesToRead(metrics, state.pods)
        await self._gauges.read(wanted)

    def held(self, autoscaler: Object) -> int:
        """Return the number of requests that activators hold for the target, by `status.demand`."""
        live = self._live()
        expired = leases.named(self._gateways) - live
        return held_requests.count(autoscaler, live, expired, clock.now(), self._hold_seconds)

    def _live(self) -> frozenset[str]:
        """Return the names of the gateways with a valid Lease."""
        return self._renewals.live(self._gateways, clock.now(), clock.monotonic())

    def is_busy(self, target: ScaleTargetName) -> bool:
        """Whether a target had a request since its load was taken, or has one now."""
        return self._board.is_busy(target)

    def observation(
        self,
        autoscaler: Object,
        target: ScaleTarget,
        state: TargetState,
        replicas: Replicas,
        *,
        now: float,
        monotonic_now: float,
    ) -> Observation:
        """Return the input of the next decision. This takes the load since the last one off the board.

        Gateways do not count the requests of a target outside an Inference, so its load is unknown unless
        activators hold requests for it.

        Args:
            autoscaler: the Autoscaler.
            target: its scale target.
            state: of the Autoscaler.
            replicas: of the target, as observed now.
            now: Unix seconds.
            monotonic_now: monotonic seconds.
        """
        name = target_name(autoscaler)
        key = Key.of(autoscaler)
        gauge_values, _ = self._gauges.last_values(key)
        has_load = target.is_ours or self.held(autoscaler) > 0
        return Observation(
            now,
            replicas,
            load=self._load(autoscaler, now, monotonic_now) if has_load else None,
            gauges=gauge_values | self._waiting_tokens(name, state),
            percentiles=self._percentiles(name, state, monotonic_now),
            engines=self._tokens.engine_load(name, replicas.ready) or self._gauges.engine_load(key),
        )

    def sources(self, key: Key, target: ScaleTarget, monotonic_now: float) -> list[Health]:
        """Return the health of every source that an observation depends on: gateways and gauges' sources."""
        _, gauge_sources = self._gauges.last_values(key)
        return [*(self._board.health(monotonic_now) if target.is_ours else ()), *gauge_sources]

    def are_known(self, target: ScaleTarget, sources: Sequence[Health], monotonic_now: float) -> bool:
        """Whether every input of a decision has been read: all `sources` are healthy, and the last reading of
        the gateways is whole and not stale.
        """
        if not target.is_ours:
            return bool(sources) and all(source.healthy for source in sources)
        is_read = self._board.is_whole and self._board.age(monotonic_now) <= self._settings.stale_seconds
        return is_read and all(source.healthy for source in sources)

    def _waiting_tokens(self, name: ScaleTargetName, state: TargetState) -> dict[str, float]:
        """Return the waiting tokens that gateways count, by metric."""
        waiting = self._tokens.waiting_tokens(name)
        metrics = [metric for metric in state.config.metrics if metric.type == "TokenQueueDepth"]
        return {} if waiting is None else {metric.name: waiting for metric in metrics}

    def _percentiles(
        self, name: ScaleTargetName, state: TargetState, monotonic_now: float
    ) -> dict[str, Percentile]:
        """Return the measured percentiles, by name of a metric of the type Latency."""
        percentiles = {
            metric.name: self._board.percentile(name, metric.percentile, monotonic_now)
            for metric in state.config.metrics
            if metric.type == "Latency"
        }
        return {metric: percentile for metric, percentile in percentiles.items() if percentile is not None}

    def _load(self, autoscaler: Object, now: float, monotonic_now: float) -> Load | None:
        """Return the load since the last decision, with the held requests that the API reports.

        An activator reports a held request at once, which may be before the next reading. Then the load has
        the length `HELD_SECONDS` and only held requests.
        """
        load = self._board.take(target_name(autoscaler))
        held = self.held(autoscaler)
        if not held:
            return load
        if load is not None:
            return replace(load, held=max(load.held, held))
        # This load ends with the last reading, not now: the next reading begins there.
        is_current = self._board.age(monotonic_now) <= self._settings.stale_seconds
        end = self._board.end if is_current else now
        return Load(end - HELD_SECONDS, end, arrivals=0, work=0, finished=0, in_flight=0, held=held)


def target_name(autoscaler: Object) -> ScaleTargetName:
    """Return the name of an Autoscaler's scale target."""
    return ScaleTargetName(autoscaler["metadata"]["namespace"], autoscaler["spec"]["scaleTargetRef"]["name"])

"""The readings of all scale targets: their load, tokens, percentiles and gauges, as the observation of one.

Reads metrics pages at each tick, and gauges beside the ticks. Decides nothing.
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
"""Length of the reading that a held request makes between two readings; arrivals are in the next one."""


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
        """Read all pages.

        Args:
            pages: of the gateways and activators.
            targets: by Autoscaler.
            timed: Autoscalers with a metric of latency.
        """
        known = set(targets.values())
        with_percentiles = {targets[key] for key in timed}
        read = await pages.read(with_percentiles)
        now, live = clock.monotonic(), self._live()
        self._board.tick(read.readings, live, known, read.held, now, problems=read.problems)
        self._board.retain(known)
        self._tokens.tick(read.readings, now)

    async def read_gauges(
        self, targets: Mapping[Key, ScaleTargetName], states: Mapping[Key, TargetState]
    ) -> None:
        """Read the metrics that gateways do not count, if the last values are old enough; no tick waits.

        Args:
            targets: by Autoscaler.
            states: of the Autoscalers.
        """
        queries: dict[Key, gauges.Request] = {}
        for key, state in states.items():
            if not state.config.metrics:
                continue
            target = targets.get(key)
            counted = target is not None and self._tokens.waiting_tokens(target) is not None
            types = gauges.TYPES - gauges.TOKEN_TYPES if counted else gauges.TYPES
            metrics = [metric for metric in state.config.metrics if metric.type in types]
            if metrics:
                queries[key] = gauges.Request(metrics, state.pods)
        await self._gauges.read(queries)

    def held(self, autoscaler: Object) -> int:
        """Return the number of requests that activators hold for the target."""
        live = self._live()
        expired = leases.named(self._gateways) - live
        return held_requests.count(autoscaler, live, expired, clock.now(), self._hold_seconds)

    def _live(self) -> frozenset[str]:
        """Return the names of the gateways with a valid Lease."""
        return self._renewals.live(self._gateways, clock.now(), clock.monotonic())

    def is_busy(self, target: ScaleTargetName) -> bool:
        """Whether the last readings of a target have requests."""
        return self._board.is_busy(target)

    def observation(
        self,
        autoscaler: Object,
        target: ScaleTarget,
        state: TargetState,
        replicas: Replicas,
        *,
        now: float,
        moment: float,
    ) -> Observation:
        """Return the input of the next decision; it takes the load since the last one.

        Args:
            autoscaler: the object.
            target: its scale target.
            state: of the Autoscaler.
            replicas: of the target, as observed now.
            now: Unix seconds.
            moment: monotonic seconds.
        """
        name = target_name(autoscaler)
        key = Key.of(autoscaler)
        values, _ = self._gauges.of(key)
        return Observation(
            now,
            replicas,
            self._load(autoscaler, now, moment) if target.is_ours or self.held(autoscaler) else None,
            values | self._waiting_tokens(name, state),
            self._percentiles(name, state, moment),
            self._tokens.engine_load(name, replicas.ready) or self._gauges.engine_load(key),
        )

    def sources(self, key: Key, target: ScaleTarget, moment: float) -> list[Health]:
        """Return the health of every source that an observation depends on."""
        _, sources = self._gauges.of(key)
        return [*(self._board.health(moment) if target.is_ours else ()), *sources]

    def are_known(self, target: ScaleTarget, sources: Sequence[Health], moment: float) -> bool:
        """Whether every input of a decision has been read."""
        if not target.is_ours:
            return bool(sources) and all(source.healthy for source in sources)
        is_read = self._board.is_whole and self._board.age(moment) <= self._settings.stale_seconds
        return is_read and all(source.healthy for source in sources)

    def _waiting_tokens(self, name: ScaleTargetName, state: TargetState) -> dict[str, float]:
        """Return the waiting tokens that gateways count, by metric."""
        waiting = self._tokens.waiting_tokens(name)
        metrics = [metric for metric in state.config.metrics if metric.type == "TokenQueueDepth"]
        return {} if waiting is None else {metric.name: waiting for metric in metrics}

    def _percentiles(self, name: ScaleTargetName, state: TargetState, moment: float) -> dict[str, Percentile]:
        percentiles = {
            metric.name: self._board.percentile(name, metric.percentile, moment)
            for metric in state.config.metrics
            if metric.type == "Latency"
        }
        return {metric: percentile for metric, percentile in percentiles.items() if percentile is not None}

    def _load(self, autoscaler: Object, now: float, moment: float) -> Load | None:
        load = self._board.take(target_name(autoscaler))
        held = self.held(autoscaler)
        if not held:
            return load
        if load is not None:
            return replace(load, held=max(load.held, held))
        # At the end of the last reading: the next one may be of an earlier time than now, by the gateway's
        # clock or by its age, and the forecast ignores a load that ends before the last.
        is_current = self._board.age(moment) <= self._settings.stale_seconds
        end = self._board.end if is_current else now
        return Load(end - HELD_SECONDS, end, arrivals=0, work=0, finished=0, in_flight=0, held=held)


def target_name(autoscaler: Object) -> ScaleTargetName:
    """Return the name of an Autoscaler's scale target."""
    return ScaleTargetName(autoscaler["metadata"]["namespace"], autoscaler["spec"]["scaleTargetRef"]["name"])

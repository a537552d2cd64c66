"""Sizes a target by tokens per second: the arriving tokens, divided by the capacity of one replica. The
capacity is the rate of a CapacityProfile, at which latencies meet their constraints, or is learned from the
engine; if the engine saturates below the profile's rate, the learned rate counts. Pure.

Engines count processed tokens, whose rate does not rise with the queue of a saturated engine. So the arriving
tokens are the arriving requests (which gateways count on entry) times the tokens of a request, if both are
known.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Any

from autoscaler.decision_values import MetricNeed
from autoscaler.observation import Capacity, EngineLoad, Load, Replicas
from autoscaler.policy.config import Metric

SATURATED_CACHE = 0.9
"""KV cache utilisation from which an engine counts as saturated: vLLM preempts requests soon after."""
SATURATED_WAITING = 1.0
"""Waiting requests per replica from which an engine counts as saturated."""
SATURATED_GAIN = 0.3
"""Weight of one saturated reading: three readings outweigh the earlier estimate."""
HEADROOM = 1.25
"""Ratio to the highest rate of a replica without saturation: the capacity is assumed a quarter beyond it."""
DECAY_SECONDS = 600.0
"""Seconds after which a request's tokens weigh 1/e in the mean: prompts change with the time of the day."""
LEAST_REQUESTS = 10.0
"""Answers from which their mean number of tokens is reliable."""
MOST_TOKENS = 1e9
"""Most tokens per second of a target, and most waiting requests: a higher value of a page is an error."""
LEAST_TOKENS = 0.01
"""Least tokens per second of a replica: a lower rate is not learned, and a profile's is an error."""
TOLERANCE = 0.1
"""Share of a replica by which tokens may exceed a whole number of replicas without adding one."""


class TokenRates:
    """The metrics of the type TokensPerSecond of one target, and the learned rates of its engines."""

    def __init__(self, metrics: Iterable[Metric], measured: Capacity | None = None) -> None:
        """Begin with nothing learned.

        Args:
            metrics: the metrics of the spec.
            measured: the capacity of a CapacityProfile; an implausible rate of tokens is ignored.
        """
        tokens = measured.tokens if measured is not None else None
        is_plausible = tokens is not None and LEAST_TOKENS <= tokens <= MOST_TOKENS
        self._measured_rate = tokens if is_plausible else None
        """Tokens per second of one replica at the latency target, by a CapacityProfile; None without one."""
        self.metrics = [metric for metric in metrics if metric.type == "TokensPerSecond"]
        self._unsaturated_rate = 0.0
        """Highest tokens per second of one replica without saturation."""
        self._saturated_rate = math.inf
        """Tokens per second of a saturated replica."""
        self._tokens = self._requests = 0.0
        """Tokens and number of recent answers, weighted by age."""
        self._replicas, self._was_saturated = 0, False
        """Of the last reading: the replicas that reported, and whether they were saturated while their number
        stayed the same."""
        self._learned_at = 0.0
        """Monotonic seconds of the last reading that was learned from; 0 before any."""
        self._last_rate = 0.0
        """Tokens per second of one replica in the last reading; 0 if it was saturated, or not plausible."""

    @property
    def capacity(self) -> float | None:
        """Return the highest tokens per second of one replica; None while unknown."""
        if self._measured_rate is not None:
            # A saturated engine does more tokens, at any latency: its rate does not raise the measured one.
            return min(self._measured_rate, self._saturated_rate)
        rate = self._unsaturated_rate * HEADROOM if math.isinf(self._saturated_rate) else self._saturated_rate
        return rate if rate > 0 else None

    @property
    def _source(self) -> str:
        """Return where the capacity comes from."""
        return "by the CapacityProfile" if self.capacity == self._measured_rate else "as learned"

    @property
    def tokens_per_request(self) -> float | None:
        """Return the mean tokens of a request, prompt and answer; None while unknown."""
        return self._tokens / self._requests if self._requests >= LEAST_REQUESTS else None

    def learn(self, engines: EngineLoad | None, load: Load | None) -> None:
        """Learn from a reading.

        Args:
            engines: tokens per second and waiting requests of all replicas together, and the highest used
                share of a KV cache.
            load: the load that gateways counted meanwhile.
        """
        if not self.metrics or engines is None or engines.replicas <= 0 or not _is_plausible(engines):
            self._was_saturated, self._last_rate = False, 0.0
            return
        if load is not None and load.seconds > 0 and (load.finished > 0 or engines.tokens > 0):
            # Engines count tokens while an answer streams, in readings before the one in which it ends. A
            # reading with neither keeps the mean, also over a long silence.
            decay = math.exp(-load.seconds / DECAY_SECONDS)
            self._tokens = self._tokens * decay + engines.tokens * load.seconds
            self._requests = self._requests * decay + load.finished
        if engines.read_at and engines.read_at == self._learned_at:
            return  # the reading of the last decision
        self._learned_at = engines.read_at
        rate_per_replica = engines.tokens / engines.replicas
        is_saturated = (
            engines.waiting >= SATURATED_WAITING * engines.replicas or engines.cache >= SATURATED_CACHE
        )
        has_same_replicas = engines.replicas == self._replicas
        self._replicas = engines.replicas
        if is_saturated and self._was_saturated and has_same_replicas and rate_per_replica >= LEAST_TOKENS:
            # Not the first saturated reading, nor one in which a replica came or went: replicas that were
            # saturated for a part of a reading show less than their highest rate.
            self._saturated_rate = (
                rate_per_replica
                if math.isinf(self._saturated_rate)
                else self._saturated_rate + SATURATED_GAIN * (rate_per_replica - self._saturated_rate)
            )
        elif not is_saturated and rate_per_replica >= LEAST_TOKENS:
            # It is the capacity only until a saturated rate is known.
            self._unsaturated_rate = max(self._unsaturated_rate, rate_per_replica)
            # Two readings in a row that are faster, and not saturated, show that the estimate is too low. The
            # lower one counts: a single wrong one, far too high, would take some twenty saturated readings to
            # correct (`SATURATED_GAIN`).
            proven_rate = min(rate_per_replica, self._last_rate)
            if proven_rate > self._saturated_rate:
                self._saturated_rate = proven_rate * HEADROOM
        self._was_saturated = is_saturated and has_same_replicas
        self._last_rate = 0.0 if is_saturated else rate_per_replica

    def metric_needs(self, engines: EngineLoad | None, rate: float, replicas: Replicas) -> list[MetricNeed]:
        """Return the needs of the metrics at `rate` requests per second."""
        return [self._metric_need(metric, engines, rate, replicas) for metric in self.metrics]

    def _metric_need(
        self, metric: Metric, engines: EngineLoad | None, rate: float, replicas: Replicas
    ) -> MetricNeed:
        if engines is None or not _is_plausible(engines):
            return MetricNeed(metric.name, None, "not measured")
        target_rate = metric.target_value or self.capacity
        if target_rate is None:
            return MetricNeed(metric.name, None, "the capacity of a replica is not known yet", engines.tokens)
        tokens_per_request = self.tokens_per_request
        work = max(engines.tokens, rate * tokens_per_request if tokens_per_request is not None else 0.0)
        count = max(math.ceil(work / target_rate - TOLERANCE), 0)
        waits = engines.waiting >= SATURATED_WAITING * max(engines.replicas, 1)
        if (
            tokens_per_request is None
            and waits
            and not replicas.starting
            and engines.replicas >= replicas.ready > 0
        ):
            # The arriving tokens are unknown: add one replica at a time while requests wait.
            count = max(count, replicas.ready + 1)
        source = "" if metric.target_value else f", {self._source}"
        message = f"{work:.3g} tokens/s at {target_rate:.3g} each{source}"
        return MetricNeed(metric.name, count, message, engines.tokens)

    def state(self) -> dict[str, Any]:
        """Return the learned state for JSON."""
        saturated_rate = None if math.isinf(self._saturated_rate) else self._saturated_rate
        return {
            "most": self._unsaturated_rate,
            "limit": saturated_rate,
            "tokens": self._tokens,
            "requests": self._requests,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore a result of `state`."""
        self._unsaturated_rate = float(state["most"])
        self._saturated_rate = math.inf if state["limit"] is None else float(state["limit"])
        self._tokens, self._requests = float(state["tokens"]), float(state["requests"])


def _is_plausible(engines: EngineLoad) -> bool:
    return all(0 <= value <= MOST_TOKENS for value in (engines.tokens, engines.waiting, engines.cache))

"""Sizes on tokens per second: the arriving tokens, divided by the highest rate of prompt and generated tokens
of one replica, which is learned from its engine. Pure.

Engines count processed tokens, whose rate does not rise with the queue of a saturated engine. So the arriving
tokens are the arriving requests (which gateways count on entry) times the tokens of a request, if both are
known.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Any

from autoscaler.decision import MetricNeed
from autoscaler.observation import EngineLoad, Load, Replicas
from autoscaler.policy.config import Metric

FULL_CACHE = 0.9
"""KV cache utilisation from which an engine counts as saturated: vLLM preempts requests soon after."""
WAITING = 1.0
"""Waiting requests per replica from which an engine counts as saturated."""
SATURATED_GAIN = 0.3
"""Weight of one saturated reading: three readings outweigh the earlier estimate."""
ROOM = 1.25
"""Ratio to the highest rate of a replica without saturation: the capacity is assumed a quarter beyond it."""
MEMORY = 600.0
"""Seconds after which a request's tokens weigh 1/e in the mean: prompts change with the time of the day."""
LEAST_REQUESTS = 10.0
"""Answers from which their mean number of tokens is reliable."""
MOST_TOKENS = 1e9
"""Most tokens per second of a target, and most waiting requests: a higher value of a page is an error."""
LEAST_TOKENS = 0.01
"""Least tokens per second from which the rate of a replica is learned."""
TOLERANCE = 0.1
"""Share of a replica by which tokens may exceed a whole number of replicas without adding one."""


class TokenRates:
    """The metrics of the type TokensPerSecond of one target, and the learned rates of its engines."""

    def __init__(self, metrics: Iterable[Metric]) -> None:
        self.metrics = [metric for metric in metrics if metric.type == "TokensPerSecond"]
        self._most = 0.0
        """Highest tokens per second of one replica without saturation."""
        self._limit = math.inf
        """Tokens per second of a saturated replica."""
        self._tokens = self._requests = 0.0
        """Tokens and number of recent answers, weighted by age."""
        self._replicas, self._was_full = 0, False

    @property
    def capacity(self) -> float | None:
        """Return the highest tokens per second of one replica; None while unknown."""
        rate = self._most * ROOM if math.isinf(self._limit) else self._limit
        return rate if rate > 0 else None

    @property
    def per_request(self) -> float | None:
        """Return the mean tokens of a request, prompt and answer; None while unknown."""
        return self._tokens / self._requests if self._requests >= LEAST_REQUESTS else None

    def learn(self, engines: EngineLoad | None, load: Load | None) -> None:
        """Learn from engine metrics, and the load that gateways counted meanwhile."""
        if not self.metrics or engines is None or engines.replicas <= 0 or not _is_plausible(engines):
            self._was_full = False
            return
        if load is not None and load.seconds > 0 and load.finished > 0:
            kept = math.exp(-load.seconds / MEMORY)
            self._tokens = self._tokens * kept + engines.tokens * load.seconds
            self._requests = self._requests * kept + load.finished
        each = engines.tokens / engines.replicas
        is_full = engines.waiting >= WAITING * engines.replicas or engines.cache >= FULL_CACHE
        is_same, self._replicas = engines.replicas == self._replicas, engines.replicas
        if is_full and self._was_full and is_same and each >= LEAST_TOKENS:
            # A replica that was saturated for a part of the reading shows less than its highest rate.
            self._limit = (
                each if math.isinf(self._limit) else self._limit + SATURATED_GAIN * (each - self._limit)
            )
        elif not is_full and each >= LEAST_TOKENS:
            self._most = max(self._most, each)
            if each > self._limit:
                self._limit = each * ROOM
        self._was_full = is_full and is_same

    def metric_needs(self, engines: EngineLoad | None, rate: float, replicas: Replicas) -> list[MetricNeed]:
        """Return the needs of the metrics at `rate` requests per second."""
        return [self._metric_need(metric, engines, rate, replicas) for metric in self.metrics]

    def _metric_need(
        self, metric: Metric, engines: EngineLoad | None, rate: float, replicas: Replicas
    ) -> MetricNeed:
        if engines is None or not _is_plausible(engines):
            return MetricNeed(metric.name, None, "not measured")
        each = metric.target_value or self.capacity
        if each is None:
            return MetricNeed(metric.name, None, "what one replica can do is not known yet", engines.tokens)
        size = self.per_request
        work = max(engines.tokens, rate * size if size is not None else 0.0)
        count = max(math.ceil(work / each - TOLERANCE), 0)
        waits = engines.waiting >= WAITING * max(engines.replicas, 1)
        if size is None and waits and not replicas.starting and engines.replicas >= replicas.ready > 0:
            # The arriving tokens are unknown: add one replica at a time while requests wait.
            count = max(count, replicas.ready + 1)
        return MetricNeed(metric.name, count, f"{work:.3g} tokens/s at {each:.3g} each", engines.tokens)

    def state(self) -> dict[str, Any]:
        """Return the learned state for JSON."""
        limit = None if math.isinf(self._limit) else self._limit
        return {"most": self._most, "limit": limit, "tokens": self._tokens, "requests": self._requests}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore a result of `state`."""
        self._most = float(state["most"])
        self._limit = math.inf if state["limit"] is None else float(state["limit"])
        self._tokens, self._requests = float(state["tokens"]), float(state["requests"])


def _is_plausible(engines: EngineLoad) -> bool:
    return all(0 <= value <= MOST_TOKENS for value in (engines.tokens, engines.waiting, engines.cache))

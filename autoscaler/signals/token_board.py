"""Sums the gateways' token counts into the load of each target's engines. Pure.

Gateways count the tokens of requests to language models. An engine is the inference server of a replica.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from autoscaler.observation import EngineLoad
from autoscaler.signals.board import Reading, is_restarted, span
from autoscaler.signals.exposition import ScaleTargetName, TargetTokens

QUEUED_SECONDS = 1.0
"""Least mean age, in seconds, at which the streams without a first token count as waiting in an engine's
queue. An assumption: a gateway does not see whether an engine reads a prompt or lets the request wait. The
first token of an answer that is not streamed is not seen either, so its request never counts as waiting."""

_NO_TOKENS = TargetTokens()


@dataclass(slots=True)
class _Gateway:
    """The last reading of one gateway."""

    reading: Reading
    ticked_at: float
    """Monotonic seconds of the tick that took the reading."""
    rates: dict[ScaleTargetName, float] = field(default_factory=dict)
    """Processed tokens per second of each target between the last two readings; empty after the first one."""


class TokenBoard:
    """The tokens of targets, summed over gateways."""

    def __init__(self) -> None:
        self._gateways: dict[str, _Gateway] = {}

    def tick(self, readings: Iterable[Reading], now: float) -> None:
        """Take the readings of one tick, one for each gateway; a gateway without a reading is forgotten.

        Args:
            readings: the readings.
            now: monotonic seconds.
        """
        self._gateways = {reading.gateway: self._updated(reading, now) for reading in readings}

    def _updated(self, reading: Reading, now: float) -> _Gateway:
        """Return a gateway's state after a reading; a reading that repeats its counts changes nothing."""
        before = self._gateways.get(reading.gateway)
        if before is None:
            return _Gateway(reading, now)
        if reading.read_at == before.reading.read_at:
            return before
        seconds = span(before.reading, reading, now - before.ticked_at)
        # The counters of a restarted Envoy, and of a new target, began at 0.
        earlier = {} if is_restarted(before.reading, reading) else before.reading.tokens
        rates = {
            target: max(tokens.processed - earlier.get(target, _NO_TOKENS).processed, 0.0) / seconds
            for target, tokens in reading.tokens.items()
        }
        return _Gateway(reading, now, rates)

    def waiting_tokens(self, target: ScaleTargetName) -> float | None:
        """Return the waiting tokens of a target; None if no gateway counts its tokens."""
        counts = self._tokens_of(target)
        return sum(tokens.waiting for tokens in counts) if counts else None

    def engine_load(self, target: ScaleTargetName, replicas: int) -> EngineLoad | None:
        """Return the load of a target's engines; None if no gateway has a rate of its tokens yet.

        Args:
            target: the scale target.
            replicas: the number of its ready replicas.
        """
        rates = [gateway.rates[target] for gateway in self._gateways.values() if target in gateway.rates]
        if not rates:
            return None
        waiting = sum(tokens.queued for tokens in self._tokens_of(target) if tokens.age >= QUEUED_SECONDS)
        read_at = max(gateway.ticked_at for gateway in self._gateways.values() if target in gateway.rates)
        return EngineLoad(tokens=sum(rates), replicas=replicas, waiting=waiting, read_at=read_at)

    def _tokens_of(self, target: ScaleTargetName) -> list[TargetTokens]:
        """Return the tokens of a target at each gateway that counts them."""
        return [
            gateway.reading.tokens[target]
            for gateway in self._gateways.values()
            if target in gateway.reading.tokens
        ]

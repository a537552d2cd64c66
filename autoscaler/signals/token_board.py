"""Sums the tokens that gateways count to the load of each target's engines. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from autoscaler.observation import EngineLoad
from autoscaler.signals.board import Reading, is_restarted
from autoscaler.signals.exposition import ScaleTargetName, Tokens

QUEUED_SECONDS = 1.0
"""Mean age of the requests without a first token from which on they count as waiting: an assumption, as a
gateway does not see whether an engine reads a prompt or lets it wait."""

_NOTHING = Tokens()


@dataclass(slots=True)
class _Gateway:
    reading: Reading
    rates: dict[ScaleTargetName, float] = field(default_factory=dict)
    """Processed tokens per second between the last two readings."""


class TokenBoard:
    """The tokens of targets, summed over gateways."""

    def __init__(self) -> None:
        self._gateways: dict[str, _Gateway] = {}

    def tick(self, readings: Iterable[Reading]) -> None:
        """Take the readings of one tick; a gateway without one is left out."""
        self._gateways = {reading.gateway: self._next(reading) for reading in readings}

    def _next(self, reading: Reading) -> _Gateway:
        before = self._gateways.get(reading.gateway)
        if before is None:
            return _Gateway(reading)
        seconds = reading.read_at - before.reading.read_at
        if seconds <= 0:  # the same counts again
            return before
        old = {} if is_restarted(before.reading, reading) else before.reading.tokens
        rates = {
            target: max(tokens.processed - old.get(target, _NOTHING).processed, 0.0) / seconds
            for target, tokens in reading.tokens.items()
        }
        return _Gateway(reading, rates)

    def waiting_tokens(self, target: ScaleTargetName) -> float | None:
        """Return the waiting tokens of a target; None if no gateway counts its tokens."""
        counts = self._tokens_of(target)
        return sum(tokens.waiting for tokens in counts) if counts else None

    def engine_load(self, target: ScaleTargetName, replicas: int) -> EngineLoad | None:
        """Return the load of a target's engines; None without two readings of its tokens.

        Args:
            target: the target.
            replicas: its ready replicas.
        """
        counted = [gateway for gateway in self._gateways.values() if target in gateway.rates]
        if not counted:
            return None
        queued = (tokens.queued for tokens in self._tokens_of(target) if tokens.age >= QUEUED_SECONDS)
        return EngineLoad(sum(gateway.rates[target] for gateway in counted), replicas, sum(queued))

    def _tokens_of(self, target: ScaleTargetName) -> list[Tokens]:
        return [
            gateway.reading.tokens[target]
            for gateway in self._gateways.values()
            if target in gateway.reading.tokens
        ]

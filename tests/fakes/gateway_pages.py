"""The metrics pages of gateways for the autoscaler, with counts that a test sets or falsifies."""

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet

from autoscaler.signals.board import Reading
from autoscaler.signals.exposition import Counts, ScaleTargetName, TargetTokens
from autoscaler.signals.pages import Pages, Scrape
from serving import clock

NAMESPACE = "default"


class FakePages(Pages):
    """One gateway, `local`, whose counts rise at the rates that a test sets."""

    on_read: Callable[[], None] = staticmethod(lambda: None)
    """Called before each reading."""

    def __init__(self, *targets: str) -> None:
        self.rates: dict[str, float] = dict.fromkeys(targets, 0.0)
        """Requests per second, by target."""
        self.in_flight: dict[str, float] = {}
        self.held: dict[str, float] = {}
        self.tokens: dict[str, TargetTokens] = {}
        """Of language models, by target."""
        self.ticks = 0
        self.seconds_behind = 0.0
        """Seconds by which the gateway's clock is behind that of the controllers."""
        self.is_gone = False
        self.repeats = False
        self.replaced: Mapping[ScaleTargetName, Counts] | None = None
        self._counts: dict[str, float] = dict.fromkeys(targets, 100.0)
        self._read = clock.monotonic()
        self._last: Reading | None = None

    async def read(self, timed: AbstractSet[ScaleTargetName] = frozenset()) -> Scrape:
        self.ticks += 1
        self.on_read()
        if self.is_gone:
            return Scrape((), {}, frozenset())
        now = clock.monotonic()
        for name, rate in self.rates.items():
            self._counts[name] = self._counts.get(name, 100.0) + rate * (now - self._read)
        self._read = now
        if not self.repeats or self._last is None:
            tokens = {ScaleTargetName(NAMESPACE, name): tokens for name, tokens in self.tokens.items()}
            now_counts = self.replaced or self._now()
            read_at = clock.now().timestamp() - self.seconds_behind
            self._last = Reading("local", read_at, 1.0, now_counts, tokens=tokens)
        held_requests = {
            ScaleTargetName(NAMESPACE, name): count for name, count in self.held.items() if count
        }
        return Scrape((self._last,), held_requests, frozenset({"local"}))

    async def close(self) -> None:
        """Do nothing: no connection is open."""

    def _now(self) -> dict[ScaleTargetName, Counts]:
        return {
            ScaleTargetName(NAMESPACE, name): Counts(
                total, total, 0, 0.05 * total, total, self.in_flight.get(name, 0.0)
            )
            for name, total in self._counts.items()
        }

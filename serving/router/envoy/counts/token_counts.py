"""Counts of tokens as values.

For each backend there are pairs of counters: what requests admit, and what they settle as tokens are read and
generated. Their difference waits. Envoy tells its module of every end of a request, that of an aborted one
included, so that no request leaves a difference behind.
"""

from dataclasses import dataclass, field

PAIRS = ("prompt", "output", "requests", "started")
"""Of counters: prompt tokens, expected tokens of the answer, requests, and start times in tenths of a second
since `EPOCH`, all of requests without a first token, except for `output`."""
EPOCH = 1_767_225_600.0
"""Unix seconds: 2026-01-01, as in the module."""
BOUNDS_US = (
    1_000.0,
    2_500.0,
    5_000.0,
    10_000.0,
    20_000.0,
    50_000.0,
    100_000.0,
    200_000.0,
    500_000.0,
    1_000_000.0,
    2_000_000.0,
    5_000_000.0,
    10_000_000.0,
    30_000_000.0,
    60_000_000.0,
)
"""Upper bounds of histograms: from an inter-token latency of a small model to a first token after a start."""
OTHER_COUNTERS = ("unread_settled", "prompt_tokens", "generated_tokens")
"""Of counters: estimated tokens of prompts whose request ended before the engine reported any; and tokens."""


@dataclass(frozen=True)
class Latencies:
    """A histogram: for each of `BOUNDS_US`, and without a bound, how many were at most so long."""

    at_most: tuple[int, ...] = (0,) * (len(BOUNDS_US) + 1)
    seconds: float = 0.0
    """Their sum."""


@dataclass
class TokenCounts:
    """The counts of one backend since Envoy's start."""

    counters: dict[str, int] = field(default_factory=dict)
    """By name; `X_admitted` and `X_settled` for each of `PAIRS`."""
    first_token: Latencies = Latencies()
    inter_token: Latencies = Latencies()

    @property
    def prompt_tokens(self) -> int:
        """Tokens of read prompts; estimated for requests that ended before the engine reported them."""
        return self.counters.get("prompt_tokens", 0) + self.counters.get("unread_settled", 0)

    @property
    def generated_tokens(self) -> int:
        """Tokens of answers, whether the client got all of them or not."""
        return self.counters.get("generated_tokens", 0)

    def waiting(self, name: str) -> int:
        """Return what requests have admitted and not settled, of one of `PAIRS`."""
        return max(0, self.counters.get(f"{name}_admitted", 0) - self.counters.get(f"{name}_settled", 0))

    def age(self, now: float) -> float:
        """Return the mean seconds since the arrival of the requests without a first token.

        Args:
            now: Unix seconds.
        """
        requests = self.waiting("requests")
        return max(0.0, now - EPOCH - self.waiting("started") / requests / 10) if requests else 0.0

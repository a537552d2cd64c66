"""Counts of tokens as values.

For each backend there are pairs of counters: amounts that requests admit, and amounts that they settle as
tokens are read and generated. Their difference waits. Envoy tells its module of every end of a request, that
of an aborted one included, so that no request leaves a difference behind.
"""

from dataclasses import dataclass, field

PAIRS = ("prompt", "output", "requests", "started")
"""Names of the pairs. At its end a request settles the rest of each pair.

- `prompt`: estimated tokens of the prompt, settled with the first token of a stream.
- `output`: expected tokens of the answer, settled as they are generated.
- `requests`: 1 for a stream, settled with its first token.
- `started`: arrival of a stream in tenths of a second since `EPOCH`, settled with its first token.

An answer that is not streamed does not show when its first token came, so its request is in the first two
pairs alone, until its end.
"""
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
"""Upper bounds of histograms in microseconds, the same in the module: from an inter-token latency of a small
model to a first token after a start."""
OTHER_COUNTERS = ("prompt_unreported", "prompt_tokens", "generated_tokens")
"""Counters without a pair.

- `prompt_unreported`: estimated prompt tokens of requests that ended after the prompt was read, before the
  engine reported the number.
- `prompt_tokens`: tokens of read prompts, as the engine reported them.
- `generated_tokens`: tokens of answers; estimated for an answer that is not streamed and whose client
  disconnects.
"""


@dataclass(frozen=True)
class Latencies:
    """A histogram: the number of latencies of at most each of `BOUNDS_US`, and of all."""

    at_most: tuple[int, ...] = (0,) * (len(BOUNDS_US) + 1)
    seconds: float = 0.0
    """The sum of the latencies."""


@dataclass
class TokenCounts:
    """The counts of one backend since Envoy's start."""

    counters: dict[str, int] = field(default_factory=dict)
    """By name; `X_admitted` and `X_settled` for each of `PAIRS`."""
    first_token: Latencies = Latencies()
    inter_token: Latencies = Latencies()

    @property
    def prompt_tokens(self) -> int:
        """Tokens of read prompts; estimated for requests that ended before the engine reported the number."""
        return self.counters.get("prompt_tokens", 0) + self.counters.get("prompt_unreported", 0)

    @property
    def generated_tokens(self) -> int:
        """Tokens of answers, whether the client got all of them or not."""
        return self.counters.get("generated_tokens", 0)

    def waiting(self, name: str) -> int:
        """Return the amount that requests have admitted and not settled, of one of `PAIRS`."""
        return max(0, self.counters.get(f"{name}_admitted", 0) - self.counters.get(f"{name}_settled", 0))

    def age(self, now: float) -> float:
        """Return the mean seconds since the arrival of the streams without a first token.

        Args:
            now: Unix seconds.
        """
        requests = self.waiting("requests")
        if not requests:
            return 0.0
        mean_arrival = EPOCH + self.waiting("started") / requests / 10
        return max(0.0, now - mean_arrival)

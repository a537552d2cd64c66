"""The samples of one window of load, as arrays with an entry for each request. Nothing is computed here."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from tuner.load.plan import Mode

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Samples:
    """The requests that ended within one window, in the order of their ends; all times in seconds."""

    mode: Mode
    level: float
    """Users, or requests per second."""
    seconds: float
    """Length of the window."""
    intended: Floats
    """Scheduled time of each request, from the window's start; negative before it."""
    latency: Floats
    """Until the last byte of the response: from the scheduled time in an open loop, else from the sending."""
    ok: NDArray[np.bool_]
    tokens: NDArray[np.int64]
    """Tokens of streamed completions by the server's count, else chunks with text; 0 without a stream."""
    ttft: Floats
    """Until the first token, from the same time as latency; negative without a stream."""
    itl: Floats
    """Times between tokens, in the order of the streams' ends; may be empty."""
    itl_done: Floats
    """End of the stream of each of these, from the window's start."""
    unfinished: Floats
    """Ages of the unanswered requests at the window's end: lower bounds of their latencies."""
    longest: float
    """Timeout of requests, and so the greatest latency."""
    silent: Floats = field(default_factory=lambda: np.empty(0))
    """Ages, likewise, of those that are streams without a token: lower bounds of their times to it."""
    generator_cpu: float = 0.0
    """Share of its cores that the generator used or waited for."""
    late: float = 0.0
    """Open loop: share of the requests that the generator sent late."""
    errors: tuple[tuple[str, int], ...] = ()
    """Errors with their counts."""

    @property
    def done(self) -> Floats:
        """End of each request, from the window's start."""
        return self.intended + self.latency


def joined(parts: Sequence[Samples]) -> Samples:
    """Join consecutive windows of one level.

    Raises:
        ValueError: no parts, or parts of different levels.
    """
    if not parts or len({(part.mode, part.level) for part in parts}) != 1:
        raise ValueError("only windows of one level can be joined")
    starts = np.concatenate([[0.0], np.cumsum([part.seconds for part in parts])])
    total = float(starts[-1])
    errors: dict[str, int] = {}
    for part in parts:
        for text, count in part.errors:
            errors[text] = errors.get(text, 0) + count
    return replace(
        parts[-1],
        seconds=total,
        intended=np.concatenate([part.intended + start for part, start in zip(parts, starts, strict=False)]),
        latency=np.concatenate([part.latency for part in parts]),
        ok=np.concatenate([part.ok for part in parts]),
        tokens=np.concatenate([part.tokens for part in parts]),
        ttft=np.concatenate([part.ttft for part in parts]),
        itl=np.concatenate([part.itl for part in parts]),
        itl_done=np.concatenate([part.itl_done + start for part, start in zip(parts, starts, strict=False)]),
        generator_cpu=sum(part.generator_cpu * part.seconds for part in parts) / total,
        late=_weighted([part.late for part in parts], [len(part.ok) for part in parts]),
        errors=tuple(errors.items()),
    )


def _weighted(values: Sequence[float], weights: Sequence[int]) -> float:
    return sum(v * w for v, w in zip(values, weights, strict=True)) / max(1, sum(weights))

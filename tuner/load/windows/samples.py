"""The samples of one window of load, as arrays with an entry for each request. No statistics."""

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
    """Scheduled time of each request, from the window's start; negative if it was before the start. In a
    closed loop it is the time of the sending."""
    latency: Floats
    """Time from `intended` until the last byte of the response."""
    ok: NDArray[np.bool_]
    """Whether the request was answered without error."""
    tokens: NDArray[np.int64]
    """Tokens of streamed completions by the server's count, else chunks with text; 0 without a stream."""
    prompt_tokens: NDArray[np.int64]
    """Prompt tokens of streamed completions by the server's count; 0 without it."""
    ttft: Floats
    """Time from `intended` until the first token; negative for a request without a token."""
    itl: Floats
    """Inter-token latencies: times between tokens, in the order of the streams' ends; may be empty."""
    itl_done: Floats
    """End of the stream of each entry of `itl`, from the window's start."""
    unfinished: Floats
    """Ages of the unanswered requests at the window's end: lower bounds of their latencies."""
    longest: float
    """Timeout of requests, and so the greatest latency."""
    silent: Floats = field(default_factory=lambda: np.empty(0))
    """Ages of the unanswered streams without a token at the window's end: lower bounds of their `ttft`."""
    generator_cpu: float = 0.0
    """Share of its cores that the load generator used or waited for, 0 to 1."""
    late: float = 0.0
    """Open loop: share of the requests that the load generator sent late."""
    errors: tuple[tuple[str, int], ...] = ()
    """Text of each error, with its number of requests."""

    @property
    def done(self) -> Floats:
        """End of each request, from the window's start."""
        return self.intended + self.latency


def joined(parts: Sequence[Samples]) -> Samples:
    """Join consecutive windows of one level.

    The unanswered requests are those at the end of the last window.

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
        prompt_tokens=np.concatenate([part.prompt_tokens for part in parts]),
        ttft=np.concatenate([part.ttft for part in parts]),
        itl=np.concatenate([part.itl for part in parts]),
        itl_done=np.concatenate([part.itl_done + start for part, start in zip(parts, starts, strict=False)]),
        generator_cpu=sum(part.generator_cpu * part.seconds for part in parts) / total,
        late=_weighted_mean([part.late for part in parts], [len(part.ok) for part in parts]),
        errors=tuple(errors.items()),
    )


def _weighted_mean(values: Sequence[float], weights: Sequence[int]) -> float:
    total = sum(value * weight for value, weight in zip(values, weights, strict=True))
    return total / max(1, sum(weights))

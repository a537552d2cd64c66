"""What one window of load recorded, request by request; arrays, and nothing computed from them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tuner.load.plan import Mode

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Samples:
    """The requests whose answers, or failures, came within one window, in the order in which they came; all times in seconds."""

    mode: Mode
    level: float
    """Users, or requests per second."""
    seconds: float
    """Length of the window."""
    intended: Floats
    """When the request was meant to be sent, from the window's start; negative where that was before it."""
    latency: Floats
    """Until the last byte of the answer: from the intended time in open loop, else from when it was sent."""
    ok: NDArray[np.bool_]
    tokens: NDArray[np.int64]
    """Of streamed completions, as the server counts them, else the chunks that carried text; 0 where it is no stream."""
    ttft: Floats
    """Until the first token, from where latency is counted; negative where there was none, as the answer is no stream."""
    itl: Floats
    """Every time between two tokens of a stream, in the order of the streams' ends; may be empty."""
    itl_done: Floats
    """When the stream of each of these was over, from the window's start."""
    unfinished: Floats
    """Ages at the window's end of the requests that had no answer yet: their latency is more than that."""
    longest: float
    """Requests are given up after this long, so no latency is longer."""
    generator_cpu: float = 0.0
    """Share of its cores that the generator used, or waited for where others had them."""
    late: float = 0.0
    """Open loop: share of the requests that the generator itself sent more than a little behind their schedule."""
    errors: tuple[tuple[str, int], ...] = ()
    """What failures were, with their counts."""

    @property
    def done(self) -> Floats:
        """When each was over, from the window's start."""
        return self.intended + self.latency


def joined(parts: Sequence[Samples]) -> Samples:
    """Put windows of one level that followed each other together.

    Raises:
        ValueError: no parts, or parts of different levels.
    """
    if not parts or len({(part.mode, part.level) for part in parts}) != 1:
        raise ValueError("windows are joined only where they are of one level")
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

"""Answers and tokens by cluster, in the memory in which Envoy's module counts them (`module/table.h`).

A reading asks nothing of Envoy. Nothing here writes to the memory.
"""

import mmap
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from serving.router.envoy.counts.token_counts import BOUNDS_US, OTHER_COUNTERS, PAIRS, Latencies, TokenCounts

CLASSES = ("1xx", "2xx", "3xx", "4xx", "5xx")
"""Classes of status codes; an answer of gRPC has the class of the status of HTTP for the same error."""
BOUNDS_MS = (
    1.0,
    2.5,
    5.0,
    10.0,
    25.0,
    50.0,
    100.0,
    250.0,
    500.0,
    1_000.0,
    2_500.0,
    5_000.0,
    10_000.0,
    30_000.0,
    60_000.0,
    300_000.0,
)
"""Upper bounds of durations, from a small model's response to a long generation; the module has the same."""

_NAME = Struct("=Q136s")
"""The beginning of a row: the size of a cluster's name in bytes, and the name in 136 bytes (the module's
`MAX_CLUSTER`)."""
_ANSWERS = Struct(f"={len(CLASSES) + len(BOUNDS_MS) + 2}Q")
"""Next in a row: answers by class; by duration, for each bound and above all bounds; the sum of durations."""
_COUNTERS = (
    *(f"{name}_settled" for name in reversed(PAIRS)),
    *(f"{name}_admitted" for name in PAIRS),
    *OTHER_COUNTERS,
)
"""In the order in which they must be read (`module/table.h`)."""
_LATENCIES = len(BOUNDS_US) + 2
"""Numbers of a histogram: one for each bound, one above all bounds, and the sum in microseconds."""
_TOKENS = Struct(f"={len(_COUNTERS) + 2 * _LATENCIES}Q")
"""Last in a row: `_COUNTERS`, and the histograms of first tokens and of inter-token latencies."""
_HEADER = Struct("=QQ48x")
"""The beginning of the memory: bytes of a row, and the number of rows. The rows follow."""
_ROW_BYTES = 704
"""`sizeof(Row)` in the module; the last 16 bytes are unused."""
_MEMORY = "/memfd:slipway-counts"
"""The beginning of the target of the memory's link in /proc/PID/fd."""


class Answers(NamedTuple):
    """The answers of one cluster since Envoy's start. Each is counted at its end."""

    classes: tuple[int, ...] = (0,) * len(CLASSES)
    """Answers by class."""
    durations: tuple[int, ...] = (0,) * (len(BOUNDS_MS) + 1)
    """Answers of replicas by duration: for each bound those above the bound before it, then those above all
    bounds. Local replies are not among them."""
    microseconds: int = 0
    """The sum of the durations, each from the end of the request to the end of the answer."""

    def since(self, before: "Answers") -> "Answers":
        """Return the answers that were counted since an earlier reading."""
        return Answers(
            tuple(now - then for now, then in zip(self.classes, before.classes, strict=True)),
            tuple(now - then for now, then in zip(self.durations, before.durations, strict=True)),
            self.microseconds - before.microseconds,
        )


class CountTable:
    """The counts of one Envoy since its start, those of removed clusters too.

    Raises:
        OSError: Envoy does not run, or its memory cannot be read.
    """

    def __init__(self, pid: int) -> None:
        with _memory_of(pid).open("rb") as file:
            self._memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._rows: dict[str, int] = {}
        """Offset of a cluster's counts."""
        self._rows_read = 0

    def answers(self) -> dict[str, Answers]:
        """Return the answers of all clusters with a row, by cluster."""
        self._read_names()
        return {name: self._answers_at(at) for name, at in self._rows.items()}

    def tokens(self, cluster: str) -> TokenCounts:
        """Return the tokens of a cluster."""
        self._read_names()
        if cluster not in self._rows:
            return TokenCounts()
        numbers = _TOKENS.unpack_from(self._memory, self._rows[cluster] + _ANSWERS.size)
        counters, histograms = numbers[: len(_COUNTERS)], numbers[len(_COUNTERS) :]
        return TokenCounts(
            dict(zip(_COUNTERS, counters, strict=True)),
            _latencies(histograms[:_LATENCIES]),
            _latencies(histograms[_LATENCIES:]),
        )

    def _read_names(self) -> None:
        """Add the rows that are new since the last reading to `_rows`."""
        row_bytes, rows = _HEADER.unpack_from(self._memory)
        if row_bytes != _ROW_BYTES:
            raise OSError(f"Envoy's module has rows of {row_bytes} bytes, want {_ROW_BYTES}")
        for index in range(self._rows_read, rows):
            start = _HEADER.size + index * _ROW_BYTES
            size, name = _NAME.unpack_from(self._memory, start)
            self._rows[name[:size].decode(errors="replace")] = start + _NAME.size
        self._rows_read = rows

    def _answers_at(self, at: int) -> Answers:
        numbers = _ANSWERS.unpack_from(self._memory, at)
        return Answers(numbers[: len(CLASSES)], numbers[len(CLASSES) : -1], numbers[-1])


def _latencies(numbers: Sequence[int]) -> Latencies:
    """Return a histogram of `_LATENCIES` numbers: each bucket of the module counts its own range alone."""
    *buckets, microseconds = numbers
    return Latencies(tuple(accumulate(buckets)), microseconds / 1e6)


def _memory_of(pid: int) -> Path:
    """Return the path by which another process of the same user opens the memory."""
    folder = Path(f"/proc/{pid}/fd")
    for descriptor in folder.iterdir():
        try:
            if str(descriptor.readlink()).startswith(_MEMORY):
                return descriptor
        except FileNotFoundError:
            continue  # it was closed meanwhile
    raise FileNotFoundError(f"{folder}: Envoy has no memory of counts")

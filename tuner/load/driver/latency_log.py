"""Every request of this process, as it was; sent to the parent in lots, so that recording costs microseconds."""

import itertools
import struct

from tuner.load import wire

_TEXTS = 64
"""Different errors that are told apart; a server that varies its errors must not fill the memory."""
_TEXT = 200
"""Characters of an error that are kept."""
_OTHER = "other errors"


class LatencyLog:
    """Keeps what happened until it is taken."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._records = bytearray()
        self._others = bytearray()
        self._errors: dict[str, int] = {}
        self._keys = itertools.count()
        self.unanswered: dict[int, float] = {}
        """When the requests without an answer were intended."""

    def begins(self, intended: float) -> int:
        """Note a request that is being sent; returns its key for `ends`."""
        key = next(self._keys)
        self.unanswered[key] = intended
        return key

    def ends(
        self,
        key: int,
        *,
        done: float,
        behind: float,
        error: str,
        tokens: int = 0,
        ttft: float = -1.0,
        gaps: list[float] | None = None,
    ) -> None:
        """Record a request that is over; `error` is empty where it was answered."""
        intended = self.unanswered.pop(key)
        self.record(intended, done, error, behind=behind, ttft=ttft, tokens=tokens)
        if gaps:
            content = wire.GAPS.pack(done, len(gaps)) + struct.pack(f"<{len(gaps)}d", *gaps)
            self._others += wire.frame(wire.TOKEN_GAPS, content)

    def record(
        self,
        intended: float,
        done: float,
        error: str,
        *,
        behind: float = 0.0,
        ttft: float = -1.0,
        tokens: int = 0,
    ) -> None:
        """Record a request of which only the end was seen."""
        number = self._number(error) if error else 0
        self._records += wire.RECORD.pack(intended, done, behind, ttft, tokens, number)

    def _number(self, error: str) -> int:
        error = error[:_TEXT]
        if error not in self._errors and len(self._errors) >= _TEXTS:
            error = _OTHER
        if error not in self._errors:
            self._errors[error] = len(self._errors) + 1
            self._others += wire.frame(wire.ERROR, error.encode())
        return self._errors[error]

    def take(self) -> bytes:
        """Return what was recorded since the last time, as frames; texts come before the records that name them."""
        found = bytes(self._others)
        if self._records:
            found += wire.frame(wire.RECORDS, bytes(self._records))
        self._records.clear()
        self._others.clear()
        return found

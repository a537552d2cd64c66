"""The log of all requests of this process, sent to the parent in batches to keep recording cheap."""

import itertools
import struct

from tuner.load import wire

_TEXTS = 64
"""Most different errors, so that a server with varying errors does not fill the memory."""
_TEXT = 200
"""Characters of an error to keep."""
_OTHER = "other errors"


class LatencyLog:
    """The records of requests that are not yet sent to the parent."""

    def __init__(self) -> None:
        """Make an empty log."""
        self._records = bytearray()
        self._other_frames = bytearray()
        self._errors: dict[str, int] = {}
        self._keys = itertools.count()
        self.unanswered: dict[int, float] = {}
        """Intended times of the unanswered requests."""
        self.silent: dict[int, float] = {}
        """Intended times of the unanswered streams that have no token yet."""

    def begins(self, intended: float, *, stream: bool = False) -> int:
        """Record that a request is being sent; returns its key for `speaks` and `ends`."""
        key = next(self._keys)
        self.unanswered[key] = intended
        if stream:
            self.silent[key] = intended
        return key

    def speaks(self, key: int) -> None:
        """Record that a stream has its first token."""
        self.silent.pop(key, None)

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
        """Record the end of a request; `error` is empty if it was answered."""
        intended = self.unanswered.pop(key)
        self.silent.pop(key, None)
        self.record(intended, done, error, behind=behind, ttft=ttft, tokens=tokens)
        if gaps:
            content = wire.GAPS.pack(done, len(gaps)) + struct.pack(f"<{len(gaps)}d", *gaps)
            self._other_frames += wire.frame(wire.TOKEN_GAPS, content)

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
        """Record a request whose beginning was not recorded."""
        number = self._number(error) if error else 0
        self._records += wire.RECORD.pack(intended, done, behind, ttft, tokens, number)

    def _number(self, error: str) -> int:
        error = error[:_TEXT]
        if error not in self._errors and len(self._errors) >= _TEXTS:
            error = _OTHER
        if error not in self._errors:
            self._errors[error] = len(self._errors) + 1
            self._other_frames += wire.frame(wire.ERROR, error.encode())
        return self._errors[error]

    def take(self) -> bytes:
        """Return the frames since the last call; error texts precede the records that refer to them."""
        frames = bytes(self._other_frames)
        if self._records:
            frames += wire.frame(wire.RECORDS, bytes(self._records))
        self._records.clear()
        self._other_frames.clear()
        return frames

"""The log of all requests of this process, sent to the parent in batches to keep recording cheap.

Moments are seconds on the monotonic clock. `intended` is the scheduled time of a request.
"""

import itertools
import struct

from tuner.load import wire

_OTHER = b"other errors"
"""The last text, of all errors that have none of the texts before it."""


class LatencyLog:
    """The records of requests that are not yet sent to the parent."""

    def __init__(self) -> None:
        """Make an empty log."""
        self._records = bytearray()
        self._other_frames = bytearray()
        self._errors: dict[bytes, int] = {}
        """The number of each error text, from 1."""
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
        prompt_tokens: int = 0,
        ttft: float = -1.0,
        gaps: list[float] | None = None,
    ) -> None:
        """Record the end of a request.

        Args:
            key: of `begins`.
            done: moment of the end.
            behind: seconds after `intended` until the request was sent.
            error: empty if the request was answered.
            tokens: number of tokens of a stream.
            prompt_tokens: number of tokens of its prompt; 0 if unknown.
            ttft: seconds after `intended` until the first token; negative without a token.
            gaps: seconds between the tokens of a stream.
        """
        intended = self.unanswered.pop(key)
        self.silent.pop(key, None)
        self.record(
            intended, done, error, behind=behind, ttft=ttft, tokens=tokens, prompt_tokens=prompt_tokens
        )
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
        prompt_tokens: int = 0,
    ) -> None:
        """Record the end of a request without a `begins`; the arguments are those of `ends`."""
        number = self._number(error) if error else 0
        self._records += wire.RECORD.pack(intended, done, behind, ttft, tokens, prompt_tokens, number)

    def _number(self, error: str) -> int:
        """Return the number of an error text; a new text is sent to the parent before its number."""
        # UTF-8 has no lone surrogates, which an answer's JSON may contain.
        text = error[: wire.ERROR_CHARACTERS].encode(errors="replace")
        if text not in self._errors and len(self._errors) >= wire.MOST_ERROR_TEXTS - 1:
            text = _OTHER
        if text not in self._errors:
            self._errors[text] = len(self._errors) + 1
            self._other_frames += wire.frame(wire.ERROR, text)
        return self._errors[text]

    def take(self) -> bytes:
        """Return the frames since the last call; error texts precede the records that refer to them."""
        frames = bytes(self._other_frames)
        if self._records:
            frames += wire.frame(wire.RECORDS, bytes(self._records))
        self._records.clear()
        self._other_frames.clear()
        return frames

"""The bounded queue of requests that wait for a prediction, and the choice of the next batch. Pure.

A ticket is the number of a request. Requests of the same form can be joined (`batches.form`). The next batch
is the oldest request and, in order, the later ones of its form, up to the first that does not fit.
"""

from collections.abc import Hashable
from dataclasses import dataclass, field


@dataclass(frozen=True)
class _Waiting:
    """A waiting request."""

    rows: int
    form: Hashable
    since: float
    """Its arrival, in seconds on the clock of `now`."""


@dataclass
class BatchQueue:
    """The queue of one replica, which predicts one batch at a time."""

    size: int
    """Most rows in one batch; a request with more rows is a batch of its own."""
    patience: float
    """Seconds for which an idle replica waits, from a request's arrival, for more requests of a batch."""
    room: int
    """Most waiting requests."""
    _waiting: dict[int, _Waiting] = field(default_factory=dict)
    """By ticket, the oldest first."""
    _is_busy: bool = False
    """Whether a batch is being predicted."""

    def __len__(self) -> int:
        """Return the number of waiting requests."""
        return len(self._waiting)

    def __contains__(self, ticket: int) -> bool:
        """Return whether a request waits."""
        return ticket in self._waiting

    def enter(self, ticket: int, rows: int, form: Hashable, now: float) -> bool:
        """Add a request and return True; False where the queue is full.

        Args:
            ticket: the request's number.
            rows: the request's rows.
            form: a batch has requests of one form.
            now: seconds on a monotonic clock, as for all methods.
        """
        if len(self._waiting) >= self.room:
            return False
        self._waiting[ticket] = _Waiting(rows, form, now)
        return True

    def leave(self, ticket: int) -> None:
        """Remove a request if it still waits."""
        self._waiting.pop(ticket, None)

    def take(self, now: float) -> tuple[int, ...]:
        """Remove and return the next batch, and mark the replica as busy; empty where no batch is due."""
        due = self.due()
        if due is None:
            return ()
        batch, is_full = self._next()
        if not is_full and now < due:
            return ()
        for ticket in batch:
            del self._waiting[ticket]
        self._is_busy = True
        return batch

    def done(self) -> None:
        """Mark the replica as idle."""
        self._is_busy = False

    def due(self) -> float | None:
        """Return the time at which the next batch is due even if it is not full.

        None where no request waits or the replica is busy.
        """
        if self._is_busy or not self._waiting:
            return None
        return next(iter(self._waiting.values())).since + self.patience

    def hurry(self) -> None:
        """Stop waiting for further requests."""
        self.patience = 0.0

    def shrink(self, rows: int) -> None:
        """Limit batches to half of `rows`, as a batch of that size failed."""
        self.size = max(1, min(self.size, rows) // 2)

    def _next(self) -> tuple[tuple[int, ...], bool]:
        """Return the tickets of the next batch, and whether the batch is full."""
        batch: list[int] = []
        rows = 0
        form = next(iter(self._waiting.values())).form
        for ticket, request in self._waiting.items():
            if request.form != form:
                continue
            if batch and rows + request.rows > self.size:
                return tuple(batch), True
            batch.append(ticket)
            rows += request.rows
            if rows >= self.size:
                return tuple(batch), True
        return tuple(batch), False

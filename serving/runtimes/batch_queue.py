"""Which requests wait for a prediction, within bounds, and which of them the next one answers. Pure.

A ticket is one request, by the number in which it came; what it holds and how it is answered is `predictions`'. The
oldest that waits is in the next batch, and with it those of its form that came after it, in their order, while they fit.
"""

from collections.abc import Hashable
from dataclasses import dataclass, field


@dataclass(frozen=True)
class _Waiting:
    rows: int
    form: Hashable
    since: float


@dataclass
class Gathering:
    """The requests of one replica, which works on one batch at a time."""

    size: int
    """Most rows in one batch; a request that has more by itself is a batch by itself."""
    patience: float
    """Seconds for which an idle replica lets a request wait for others."""
    room: int
    """Most requests that wait."""
    _waiting: dict[int, _Waiting] = field(default_factory=dict)
    _is_busy: bool = False

    def __len__(self) -> int:
        """Return how many wait."""
        return len(self._waiting)

    def __contains__(self, ticket: int) -> bool:
        """Return whether this one waits."""
        return ticket in self._waiting

    def enter(self, ticket: int, rows: int, form: Hashable, now: float) -> bool:
        """Let a request wait, if there is room; those of one form can be in one batch."""
        if len(self._waiting) >= self.room:
            return False
        self._waiting[ticket] = _Waiting(rows, form, now)
        return True

    def leave(self, ticket: int) -> None:
        """Forget a request, if it still waits."""
        self._waiting.pop(ticket, None)

    def take(self, now: float) -> tuple[int, ...]:
        """Return the next batch, of which the replica is busy until `done`; empty where it is not time yet."""
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
        """The replica is idle again."""
        self._is_busy = False

    def due(self) -> float | None:
        """Return when the next batch goes though it is not full; None where none waits, or the replica is busy."""
        if self._is_busy or not self._waiting:
            return None
        return next(iter(self._waiting.values())).since + self.patience

    def hurry(self) -> None:
        """From now on, wait for nobody."""
        self.patience = 0.0

    def shrink(self, rows: int) -> None:
        """A batch of so many rows was too large: half of it, from now on."""
        self.size = max(1, min(self.size, rows) // 2)

    def _next(self) -> tuple[tuple[int, ...], bool]:
        """Return the oldest and what goes with it, and whether no more could."""
        batch: list[int] = []
        rows = 0
        form = next(iter(self._waiting.values())).form
        for ticket, one in self._waiting.items():
            if one.form != form:
                continue
            if batch and rows + one.rows > self.size:
                return tuple(batch), True
            batch.append(ticket)
            rows += one.rows
            if rows >= self.size:
                return tuple(batch), True
        return tuple(batch), False

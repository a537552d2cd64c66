"""Measures how long a write that may wait, such as that of a status, has waited: a burst of changes is one
write.

The waits are in memory only: after a restart each begins again.
"""

from dataclasses import dataclass

from serving import clock
from serving.kube.informer import Key

MOST_PUT_OFFS = 5
"""How often a wait may begin anew. A rollout has no more own writes: a controller that makes more fights with
another writer, which must not put the write off for ever.
"""


@dataclass
class _Wait:
    since: float
    """In monotonic seconds."""
    put_offs: int = 0
    """How often it began anew."""


class Settling:
    """The waits by key. Each is measured from its first change; only `put_off` begins it anew."""

    def __init__(self) -> None:
        self._waits: dict[Key, _Wait] = {}

    def seconds_left(self, key: Key, seconds: float) -> float:
        """Return the seconds until the key's wait has lasted `seconds`; 0 or less if the wait is over.

        A key without a wait begins one now.
        """
        now = clock.monotonic()
        return self._waits.setdefault(key, _Wait(now)).since + seconds - now

    def put_off(self, key: Key) -> None:
        """Begin the wait anew, as other own writes are about to change the waiting write."""
        now = clock.monotonic()
        wait = self._waits.setdefault(key, _Wait(now))
        if wait.put_offs < MOST_PUT_OFFS:
            wait.since = now
            wait.put_offs += 1

    def end(self, key: Key) -> None:
        """Forget the wait, as the write was made or is not needed."""
        self._waits.pop(key, None)

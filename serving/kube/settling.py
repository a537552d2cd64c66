"""How long a write that may wait has been waiting, by key, so that the changes of a burst are one write.

It is in memory only: after a restart the wait begins again.
"""

from dataclasses import dataclass

from serving import clock
from serving.kube.informer import Key

MOST_PUT_OFFS = 5
"""Most times that a wait begins anew: more own writes than the steps of a rollout are a fight with another
writer."""


@dataclass
class _Wait:
    since: float
    put_offs: int = 0


class Settling:
    """Counts from the first change, not the last: a write is not put off by changes that keep coming."""

    def __init__(self) -> None:
        self._waits: dict[Key, _Wait] = {}

    def seconds_left(self, key: Key, seconds: float) -> float:
        """Return the rest of a wait of so many seconds, which begins now if none runs; at most 0 if it is
        over.
        """
        now = clock.monotonic()
        return self._waits.setdefault(key, _Wait(now)).since + seconds - now

    def put_off(self, key: Key) -> None:
        """Let the wait begin anew, as an own write is about to change what waits."""
        now = clock.monotonic()
        wait = self._waits.setdefault(key, _Wait(now))
        if wait.put_offs < MOST_PUT_OFFS:
            wait.since = now
            wait.put_offs += 1

    def end(self, key: Key) -> None:
        """Forget a wait: nothing waits any more."""
        self._waits.pop(key, None)

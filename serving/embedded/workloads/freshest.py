"""The newest known state of an object: the cache, or what our own last write returned while the cache is behind.

Deciding on a status that lacks our own last word would say things twice: Events, transition times, revisions.
Compares resourceVersions as numbers, which the embedded API promises and a cluster does not.
"""

from serving.kube import Informer, Key
from serving.objects import Object


class Freshest:
    """Reads one kind; tell it of each write to an object that a later decision reads."""

    def __init__(self, informer: Informer) -> None:
        self._informer = informer
        self._written: dict[Key, Object] = {}

    def get(self, key: Key) -> Object | None:
        """Return the object, or None where the cache has none."""
        cached = self._informer.items.get(key)
        written = self._written.get(key)
        if written is None:
            return cached
        if cached is not None and _newer(written, cached):
            return written
        del self._written[key]
        return cached

    def wrote(self, answer: Object) -> None:
        """Remember the API's answer to a write."""
        self._written[Key.of(answer)] = answer


def _newer(written: Object, cached: Object) -> bool:
    one, other = written["metadata"], cached["metadata"]
    return bool(one["uid"] == other["uid"]) and int(one["resourceVersion"]) > int(other["resourceVersion"])

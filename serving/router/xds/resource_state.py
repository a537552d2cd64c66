"""The versions of one type of resource that Envoy should have, has been sent, and has acknowledged."""

from collections.abc import Mapping
from typing import Generic, TypeVar

V = TypeVar("V")
"""A version: equal versions have equal content. It is a digest or, for weights, the content itself."""


class ResourceState(Generic[V]):
    """The versions of one type of resource, by name; version None is an absent resource.

    At most one response is in flight, that is, sent and not answered.
    """

    def __init__(self) -> None:
        self.target: dict[str, V] = {}
        """The versions that Envoy should have."""
        self.acknowledged: dict[str, V] = {}
        """The versions that Envoy has confirmed."""
        self.awaiting_answer = False
        """Whether a response is in flight."""
        self._in_flight: dict[str, V | None] = {}
        """The versions in the response in flight."""
        self._uncertain: set[str] = set()
        """Resources that must be sent again, also with their acknowledged version: those of a rejected
        response, a part of which Envoy may have accepted, and those of `doubt`."""
        self._dirty: set[str] = set()
        """Resources that may differ from the target; all others do not differ."""

    def set_target(self, changes: Mapping[str, V | None]) -> None:
        """Change the target versions."""
        for name, version in changes.items():
            if version is None:
                self.target.pop(name, None)
            else:
                self.target[name] = version
        self._dirty |= changes.keys()

    def reset(self, acknowledged: Mapping[str, V]) -> None:
        """Begin a session with an Envoy that has these versions, and got no response in it yet."""
        self.acknowledged = dict(acknowledged)
        self.awaiting_answer = False
        self._in_flight, self._uncertain = {}, set()
        self._dirty = self.target.keys() | self.acknowledged.keys()

    def sent(self, name: str) -> V | None:
        """Return the version that Envoy has after the response in flight; None if absent or uncertain."""
        if name in self._uncertain:
            return None
        return self._in_flight[name] if name in self._in_flight else self.acknowledged.get(name)

    def possible_versions(self, name: str) -> tuple[V | None, V | None]:
        """Return the two versions of which Envoy has one: the acknowledged version and the sent one."""
        return self.acknowledged.get(name), self.sent(name)

    def all_sent(self) -> dict[str, V]:
        """Return the versions of all resources that Envoy has once it accepts the response in flight."""
        versions = {**self.acknowledged, **self._in_flight}
        return {name: version for name, version in versions.items() if version is not None}

    def to_update(self) -> list[str]:
        """Return the resources whose target version Envoy may lack after the response in flight."""
        return [name for name in self._differing() if name in self.target]

    def to_remove(self) -> list[str]:
        """Return the resources that, after the response in flight, Envoy may have and should not have."""
        return [name for name in self._differing() if name not in self.target]

    def mark_sent(self, versions: Mapping[str, V | None]) -> None:
        """Record that a response with these versions was sent; Envoy's answer must precede the next one."""
        self.awaiting_answer = True
        self._in_flight = dict(versions)
        self._uncertain -= versions.keys()
        self._dirty |= versions.keys()

    def mark_answered(self, *, accepted: bool) -> None:
        """Record Envoy's answer to the response in flight; a rejected one may be accepted in part."""
        self.awaiting_answer = False
        sent, self._in_flight = self._in_flight, {}
        if accepted:
            for name, version in sent.items():
                if version is None:
                    self.acknowledged.pop(name, None)
                else:
                    self.acknowledged[name] = version
        else:
            self._uncertain |= sent.keys()

    def doubt(self, name: str) -> None:
        """Assume that Envoy may lack a resource, so that it is sent again."""
        self._uncertain.add(name)
        self._dirty.add(name)

    def forget(self, name: str) -> None:
        """Assume that Envoy lacks a resource, as it dropped it or subscribes to it again."""
        self.acknowledged.pop(name, None)
        self._in_flight.pop(name, None)
        self._uncertain.discard(name)
        self._dirty.add(name)

    def _differing(self) -> set[str]:
        """Return the resources whose sent version is not the target's or is uncertain."""
        self._dirty = {
            name
            for name in self._dirty
            if name in self._uncertain or self.sent(name) != self.target.get(name)
        }
        return self._dirty

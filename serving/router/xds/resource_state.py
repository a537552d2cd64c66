"""The versions of one type of resource that Envoy should have, has acknowledged, and has been sent."""

from collections.abc import Mapping
from typing import Generic, TypeVar

V = TypeVar("V")


class ResourceState(Generic[V]):
    """The state of one type of resource, by name. Version None means that the resource is absent."""

    def __init__(self) -> None:
        self.target: dict[str, V] = {}
        self.acknowledged: dict[str, V] = {}
        self.awaiting_answer = False
        self._in_flight: dict[str, V | None] = {}
        self._uncertain: set[str] = set()
        """Resources that Envoy may lack: those of a rejected response, some of which it may have accepted,
        and those that `doubt` names."""
        self._dirty: set[str] = set()
        """Resources that may differ from the target; all others do not."""

    def set_target(self, changes: Mapping[str, V | None]) -> None:
        """Change the target versions."""
        for name, version in changes.items():
            if version is None:
                self.target.pop(name, None)
            else:
                self.target[name] = version
        self._dirty |= changes.keys()

    def reset(self, acknowledged: Mapping[str, V]) -> None:
        """Start with an Envoy that has these versions."""
        self.acknowledged = dict(acknowledged)
        self.awaiting_answer = False
        self._in_flight, self._uncertain = {}, set()
        self._dirty = self.target.keys() | self.acknowledged.keys()

    def sent(self, name: str) -> V | None:
        """Return the version after Envoy accepts the response in flight; None if uncertain or absent."""
        if name in self._uncertain:
            return None
        return self._in_flight[name] if name in self._in_flight else self.acknowledged.get(name)

    def possible_versions(self, name: str) -> tuple[V | None, V | None]:
        """Return the versions that Envoy may have: the acknowledged one and the sent one."""
        return self.acknowledged.get(name), self.sent(name)

    def all_sent(self) -> dict[str, V]:
        """Return the versions that Envoy has once it accepts the response in flight."""
        versions = {**self.acknowledged, **self._in_flight}
        return {name: version for name, version in versions.items() if version is not None}

    def to_update(self) -> list[str]:
        """Return the resources that Envoy lacks, or has in another version."""
        return [name for name in self._differing() if name in self.target]

    def to_remove(self) -> list[str]:
        """Return the resources that Envoy should not have."""
        return [name for name in self._differing() if name not in self.target]

    def mark_sent(self, versions: Mapping[str, V | None]) -> None:
        """Record a response; the next one may be sent after Envoy's answer."""
        self.awaiting_answer = True
        self._in_flight = dict(versions)
        self._uncertain -= versions.keys()
        self._dirty |= versions.keys()

    def mark_answered(self, *, accepted: bool) -> None:
        """Record Envoy's answer; of a response that was not accepted, Envoy may have accepted a part."""
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
        self._dirty = {
            name
            for name in self._dirty
            if name in self._uncertain or self.sent(name) != self.target.get(name)
        }
        return self._dirty

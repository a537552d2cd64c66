"""Which ModelVersions are in use, from the caches of their users.

The Pods are those of Inferences. Other Pods that mount a model image are known by their node's pins in the
store.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from serving.kube import Informer, Key, Watches
from serving.objects import Object
from serving.planning.models import retention
from serving.resources import kinds, names
from serving.resources.kinds import Kind

_INDEX = "used-versions"
_VERSIONS_OF: Mapping[Kind, Callable[[Mapping[str, Any]], frozenset[str]]] = {
    kinds.INFERENCE: retention.versions_of_inference,
    kinds.DEPLOYMENT: retention.versions_of_deployment,
    kinds.POD: retention.versions_of_pod,
    kinds.PROFILING_EXPERIMENT: retention.versions_of_experiment,
    kinds.TRIAL: retention.versions_of_trial,
}
_MOUNTING = frozenset(_VERSIONS_OF) - {kinds.PROFILING_EXPERIMENT}
"""Kinds whose Pods mount the image: those of an experiment are of its Trials."""


class VersionUsage:
    """The users of ModelVersions; each controller has its own, created before the watches run."""

    def __init__(self, watches: Watches, on_change: Callable[[Key], None]) -> None:
        """`on_change` gets the key of a ModelVersion that has its first user or has lost its last.

        It also gets the key at the first and last user whose Pods mount the image.
        """
        labels = {kinds.POD: names.INFERENCE_LABEL}
        self._informers = {kind: watches.of(kind, labels=labels.get(kind, "")) for kind in _VERSIONS_OF}
        self._on_change = on_change
        for kind, informer in self._informers.items():
            informer.index(_INDEX, partial(_keys, kind))
            informer.on_change(partial(self._changed, kind))

    @property
    def informers(self) -> tuple[Informer, ...]:
        """The informers that must be synced before the first query."""
        return tuple(self._informers.values())

    def is_used(self, version: Key) -> bool:
        """Whether a ModelVersion has a user."""
        return self._count(str(version), self._informers) > 0

    def is_mounted(self, version: Key) -> bool:
        """Whether a ModelVersion has a user whose Pods mount its image, now or once they start."""
        return self._count(str(version), _MOUNTING) > 0

    def users(self, version: Key) -> list[str]:
        """Return the users of a ModelVersion for messages: `Inference digits`."""
        return [
            f"{kind.kind} {user['metadata']['name']}"
            for kind, informer in self._informers.items()
            for user in informer.by_index(_INDEX, str(version))
        ]

    def _changed(self, kind: Kind, before: Object | None, after: Object | None) -> None:
        old = frozenset(_keys(kind, before)) if before is not None else frozenset()
        new = frozenset(_keys(kind, after)) if after is not None else frozenset()
        # The indexes include this change already: a first user has the count 1, a lost last user the count 0.
        changed: set[str] = set()
        groups = [frozenset(self._informers), _MOUNTING]
        for users in (group for group in groups if kind in group):
            changed |= {key for key in new - old if self._count(key, users) == 1}
            changed |= {key for key in old - new if self._count(key, users) == 0}
        for key in sorted(changed):
            namespace, _, name = key.partition("/")
            self._on_change(Key(namespace, name))

    def _count(self, key: str, users: Iterable[Kind]) -> int:
        return sum(self._informers[kind].count(_INDEX, key) for kind in users)


def _keys(kind: Kind, obj: Object) -> list[str]:
    return [str(Key(obj["metadata"]["namespace"], version)) for version in _VERSIONS_OF[kind](obj)]

"""Who uses which ModelVersion, read from the caches of Inferences, Deployments and Pods; says when that changes.

The Pods are those of Inferences. Others that mount a model image are known by their node's pins in the store.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from serving.kube import Informer, Key, Watches
from serving.objects import Object
from serving.planning.models import release
from serving.resources import kinds, names
from serving.resources.kinds import Kind

_USED = "used-versions"
_READ: Mapping[Kind, Callable[[Mapping[str, Any]], frozenset[str]]] = {
    kinds.INFERENCE: release.versions_of_inference,
    kinds.DEPLOYMENT: release.versions_of_deployment,
    kinds.POD: release.versions_of_pod,
}


class Usage:
    """One per controller that asks; must be made before the watches run."""

    def __init__(self, watches: Watches, on_change: Callable[[Key], None]) -> None:
        """`on_change` is called with a ModelVersion's key when its first user comes, and when its last one has gone."""
        labels = {kinds.POD: names.INFERENCE_LABEL}
        self._informers = {kind: watches.of(kind, labels=labels.get(kind, "")) for kind in _READ}
        self._on_change = on_change
        for kind, informer in self._informers.items():
            informer.index(_USED, partial(_keys, kind))
            informer.on_change(partial(self._changed, kind))

    @property
    def informers(self) -> tuple[Informer, ...]:
        """What must be synced before anybody asks."""
        return tuple(self._informers.values())

    def is_used(self, version: Key) -> bool:
        """Whether anybody uses a ModelVersion."""
        return self._count(str(version)) > 0

    def of(self, version: Key) -> list[str]:
        """Return who uses a ModelVersion, as people would say it: `Inference digits`."""
        return [
            f"{kind.kind} {found['metadata']['name']}"
            for kind, informer in self._informers.items()
            for found in informer.by_index(_USED, str(version))
        ]

    def _changed(self, kind: Kind, before: Object | None, after: Object | None) -> None:
        was = frozenset(_keys(kind, before)) if before is not None else frozenset()
        now = frozenset(_keys(kind, after)) if after is not None else frozenset()
        turned = {key for key in now - was if self._count(key) == 1}
        turned |= {key for key in was - now if self._count(key) == 0}
        for key in sorted(turned):
            namespace, _, name = key.partition("/")
            self._on_change(Key(namespace, name))

    def _count(self, key: str) -> int:
        return sum(informer.count(_USED, key) for informer in self._informers.values())


def _keys(kind: Kind, obj: Object) -> list[str]:
    return [str(Key(obj["metadata"]["namespace"], version)) for version in _READ[kind](obj)]

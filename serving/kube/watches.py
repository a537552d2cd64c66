"""The informers of one process: all its readers of a kind share one copy and one watch."""

import asyncio
from collections.abc import Callable

from serving.kube import optional_informer
from serving.kube.connection.client import Kube
from serving.kube.informer import Informer
from serving.kube.optional_informer import OptionalInformer
from serving.kube.polled_object import PolledObject
from serving.objects import Object
from serving.resources import kinds
from serving.resources.kinds import Kind, OptionalKind


class Watches:
    """Informers by kind, namespace and labels; they run together."""

    def __init__(self, kube: Kube, only_namespace: str = "") -> None:
        """Watch the objects of `only_namespace`, or of all namespaces if it is empty."""
        self._kube = kube
        self._only_namespace = only_namespace
        self._informers: dict[tuple[Kind, str | None, str], Informer] = {}
        self._optional: dict[OptionalKind, OptionalInformer] = {}

    def of(self, kind: Kind, *, namespace: str | None = None, labels: str = "") -> Informer:
        """Return the informer of a kind, a namespace (None: all that are watched) and labels; call it before
        `run`.
        """
        key = (kind, namespace or self._only_namespace or None, labels)
        if key not in self._informers:
            self._informers[key] = self._made(*key)
        return self._informers[key]

    def optional(self, kind: OptionalKind, keep: Callable[[Object], Object]) -> OptionalInformer:
        """Return the informer of a kind that the API may not serve; call it before `run`.

        It keeps the part of each object that `keep` returns.
        """
        if kind not in self._optional:
            namespace = self._only_namespace or None
            self._optional[kind] = OptionalInformer(self._kube, kind, namespace=namespace, keep=keep)
        return self._optional[kind]

    def _made(self, kind: Kind, namespace: str | None, labels: str) -> Informer:
        if kind == kinds.NAMESPACE and namespace:  # a Role lets nobody list or watch Namespaces
            return PolledObject(self._kube, kind, namespace)
        return Informer(self._kube, kind, namespace=namespace, labels=labels)

    def unsynced(self) -> list[str]:
        """Return the plural names of the kinds whose objects are not listed yet, in order.

        Optional kinds do not count: a fault of one concerns no other.
        """
        return sorted({i.kind.plural for i in self._informers.values() if not i.synced.is_set()})

    async def run(self) -> None:
        """List and watch until cancelled."""
        async with asyncio.TaskGroup() as group:
            for informer in self._informers.values():
                group.create_task(informer.run())
            if self._optional:
                group.create_task(optional_informer.run(self._kube, self._optional.values()))

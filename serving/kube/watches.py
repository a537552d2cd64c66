"""The informers of one process: all its readers of a kind share one copy and one watch."""

import asyncio

from serving.kube.client import Kube
from serving.kube.informer import Informer
from serving.resources.kinds import Kind


class Watches:
    """Informers by kind, namespace and labels; they run together."""

    def __init__(self, kube: Kube) -> None:
        self._kube = kube
        self._informers: dict[tuple[Kind, str | None, str], Informer] = {}

    def of(self, kind: Kind, *, namespace: str | None = None, labels: str = "") -> Informer:
        """Return the informer of a kind, a namespace (None: all) and labels; call it before `run`."""
        key = (kind, namespace, labels)
        if key not in self._informers:
            self._informers[key] = Informer(self._kube, kind, namespace=namespace, labels=labels)
        return self._informers[key]

    def unsynced(self) -> list[str]:
        """Return the plural names of the kinds whose objects are not listed yet, in order."""
        return sorted({i.kind.plural for i in self._informers.values() if not i.synced.is_set()})

    async def run(self) -> None:
        """List and watch until cancelled."""
        async with asyncio.TaskGroup() as group:
            for informer in self._informers.values():
                group.create_task(informer.run())

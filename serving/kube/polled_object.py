"""The copy of one cluster-scoped object, such as the only Namespace that is watched.

A Role lets an account `get` its Namespace, and never list or watch the Namespaces of a cluster.
"""

import asyncio
import logging

from serving import errors
from serving.kube.connection.client import Kube
from serving.kube.informer import Informer, Key
from serving.resources.kinds import Kind

log = logging.getLogger(__name__)

POLL_SECONDS = 10.0
"""Between two reads: a policy of the Namespace applies to stored versions within this time; to new ones at
once."""
RETRY_SECONDS = 1.0
"""After a failed read: the first one is a condition of readiness."""


class PolledObject(Informer):
    """An informer of one object, which it reads again and again."""

    def __init__(self, kube: Kube, kind: Kind, name: str) -> None:
        """Read the object `name` of a kind without namespaces."""
        super().__init__(kube, kind)
        self._name = name

    async def run(self) -> None:
        """Read until cancelled."""
        while True:
            pause = POLL_SECONDS
            try:
                await self._read()
                self.synced.set()
            except (errors.ApiError, errors.Unavailable) as error:
                log.info("read %s %s: %s", self.kind.plural, self._name, error)
                pause = RETRY_SECONDS
            await asyncio.sleep(pause)

    async def _read(self) -> None:
        key = Key("", self._name)
        try:
            obj = await self._kube.get(self.kind, None, self._name)
        except errors.NotFound:
            if key in self.items:
                self._store(key, None)
            return
        self._resource_version = max(self._resource_version, int(obj["metadata"]["resourceVersion"]))
        before = self.items.get(key)
        if before is None or before["metadata"]["resourceVersion"] != obj["metadata"]["resourceVersion"]:
            self._store(key, obj)

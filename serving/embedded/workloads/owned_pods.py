"""The Pods of an owner, with own writes that the watch has not yet delivered (`serving.kube.cache`).

The node agent (`serving.embedded.kubelet.agent`) runs the Pods that are created here.
If a write got no response, the Pod is read from the API. A restarted agent lists before it plans.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from serving import errors
from serving.embedded.event_queue import EventQueue
from serving.embedded.workloads import pods
from serving.kube import Informer, Key, Kube
from serving.kube.cache import Cache, controlling_owner_uids
from serving.objects import Object
from serving.resources import kinds
from serving.resources.kubernetes.events import EventToEmit

T = TypeVar("T")

MAX_CONCURRENT = 32
"""The most concurrent requests for one owner. Rounds have 1, 2, 4, ... requests, so that a refusal that holds
for all Pods is met once (k8s.io/kubernetes/pkg/controller/replicaset: slow start)."""


class OwnedPods:
    """Reads, creates, patches and deletes the Pods of Deployments and Jobs; one per agent."""

    def __init__(self, kube: Kube, informer: Informer, events: EventQueue) -> None:
        self._kube = kube
        self._events = events
        self._cache = Cache(informer)
        self._unconfirmed: dict[str, set[Key]] = {}
        """Pods whose create, patch or delete got no response, by the uid of their owner."""
        self._taken: dict[str, set[str]] = {}
        """Names at which a create met a Pod of another owner, by the uid of the owner that tried."""

    def of(self, owner: Object) -> list[Object]:
        """Return all Pods that the owner controls; those that were deleted have a deletionTimestamp."""
        return list(self._cache.owned(kinds.POD, owner).values())

    def taken(self, owner: Object) -> frozenset[str]:
        """Return the names at which a create for this owner met a Pod of another owner."""
        return frozenset(self._taken.get(owner["metadata"]["uid"], ()))

    def is_behind(self, owner: Object) -> bool:
        """Whether the watch has not yet delivered a write to one of the owner's Pods."""
        return self._cache.is_behind(kinds.POD, owner)

    def forget(self, uid: str) -> None:
        """Drop the state of an owner that is gone."""
        self._unconfirmed.pop(uid, None)
        self._taken.pop(uid, None)

    async def confirm_writes(self, owner: Object) -> None:
        """Read from the API the Pods whose writes got no response; call before `of`."""
        uid = owner["metadata"]["uid"]
        for key in list(self._unconfirmed.get(uid, ())):
            cached = self._cache.get(kinds.POD, *key)
            try:
                stored = await self._kube.get(kinds.POD, *key)
            except errors.NotFound:
                if cached is not None:
                    self._cache.remember_delete(kinds.POD, cached)
            else:
                self._cache.remember_write(kinds.POD, stored)
            self._unconfirmed[uid].discard(key)

    async def create(self, kind: kinds.Kind, owner: Object, bodies: Sequence[Object]) -> None:
        """Create the Pods, except those of the owner that already exist.

        Raises:
            errors.Temporary: a name is that of another owner's Pod; the next plan must avoid `taken`.
            errors.ApiError, errors.Unavailable: the first failure; later rounds were not tried.
        """
        if bodies:
            names = ", ".join(body["metadata"]["name"] for body in bodies)
            await _in_rounds(lambda body: self._create(owner, body), bodies)
            self._events.add(
                _with_type(kind, owner), EventToEmit("SuccessfulCreate", f"Created pod: {names}")
            )

    async def delete(self, kind: kinds.Kind, owner: Object, surplus: Sequence[pods.PodFacts]) -> None:
        """Delete the Pods gracefully, except those that are gone.

        Raises:
            errors.ApiError, errors.Unavailable: the first failure; later rounds were not tried.
        """
        if surplus:
            await _in_rounds(lambda pod: self._delete(owner, pod), surplus)
            text = f"Deleted pod: {', '.join(pod.name for pod in surplus)}"
            self._events.add(_with_type(kind, owner), EventToEmit("SuccessfulDelete", text))

    async def patch(self, owner: Object, pod: pods.PodFacts, metadata: Object) -> None:
        """Merge `metadata` into that of the Pod, unless the Pod is gone.

        Raises:
            errors.ApiError, errors.Unavailable: the patch failed.
        """
        key = Key(owner["metadata"]["namespace"], pod.name)
        patch = {"metadata": {**metadata, "uid": pod.uid}}
        try:
            patched = await self._kube.patch(kinds.POD, *key, patch)
        except (errors.NotFound, errors.Conflict):  # the Pod is gone, or another one has its name
            return
        except errors.Unavailable:
            self._unconfirmed.setdefault(owner["metadata"]["uid"], set()).add(key)
            raise
        self._cache.remember_write(kinds.POD, patched)

    async def _create(self, owner: Object, body: Object) -> None:
        meta = owner["metadata"]
        key = Key(meta["namespace"], body["metadata"]["name"])
        try:
            created = await self._kube.create(kinds.POD, body)
        except errors.AlreadyExists:
            created = await self._kube.get(kinds.POD, *key)
            if meta["uid"] not in controlling_owner_uids(created):
                self._taken.setdefault(meta["uid"], set()).add(key.name)
                raise errors.Temporary("NameTaken", f"Pod {key} is not of {meta['name']}", 0.0) from None
        except errors.Unavailable:
            self._unconfirmed.setdefault(meta["uid"], set()).add(key)
            raise
        self._cache.remember_write(kinds.POD, created)

    async def _delete(self, owner: Object, pod: pods.PodFacts) -> None:
        meta = owner["metadata"]
        key = Key(meta["namespace"], pod.name)
        try:
            await self._kube.delete(kinds.POD, *key, uid=pod.uid)
        except errors.Unavailable:
            self._unconfirmed.setdefault(meta["uid"], set()).add(key)
            raise
        if (cached := self._cache.get(kinds.POD, *key)) is not None and cached["metadata"]["uid"] == pod.uid:
            self._cache.remember_delete(kinds.POD, cached)


def _with_type(kind: kinds.Kind, owner: Object) -> Object:
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": owner["metadata"]}


async def _in_rounds(call: Callable[[T], Awaitable[None]], items: Sequence[T]) -> None:
    """Call for every item in rounds of 1, 2, 4, ...; a failure ends the calls after its round."""
    size, start = 1, 0
    while start < len(items):
        results = await asyncio.gather(
            *(call(item) for item in items[start : start + size]), return_exceptions=True
        )
        for result in results:
            if isinstance(result, BaseException):
                raise result
        start, size = start + size, min(size * 2, MAX_CONCURRENT)

"""The Pods of an owner as they are after our own writes, though the watch has not told of these yet.

A controller that plans on a cache which lacks its last create or delete does it again, to another Pod. So what
was written here is laid over the cache until the watch has caught up (or `FORGET_SECONDS` have passed), and
where an answer was lost the API is asked. A restarted agent lists before it plans, so it needs no memory.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from serving import clock, errors
from serving.embedded.event_queue import EventQueue, Told
from serving.embedded.workloads import pods
from serving.kube import Informer, Key, Kube
from serving.objects import Object
from serving.resources import kinds

T = TypeVar("T")

FORGET_SECONDS = 30.0
"""A watch that has not told of a write by then has missed it (the Pod came and went between two lists)."""
MOST_AT_ONCE = 32
"""Requests in flight for one owner; the first round is one, then two, and so on, so that what is refused
for all is refused once (k8s.io/kubernetes/pkg/controller/replicaset: slow start)."""
OWNER = "owner"


@dataclass(frozen=True)
class _Ahead:
    """One write that the watch has not told of: a created Pod, or (None) the deletion of `uid`."""

    uid: str
    created: Object | None
    forget_at: float


class OwnedPods:
    """Reads, creates and deletes the Pods of Deployments and Jobs; one per agent."""

    def __init__(self, kube: Kube, informer: Informer, events: EventQueue, node: str) -> None:
        self._kube = kube
        self._events = events
        self._node = node
        self._informer = informer
        self._ahead: dict[str, dict[Key, _Ahead]] = {}
        self._unsure: dict[str, set[Key]] = {}
        self._taken: dict[str, set[str]] = {}
        informer.index(OWNER, owner_uids)
        informer.on_change(self._seen)

    def of(self, owner: Object) -> list[Object]:
        """Return all Pods that the owner controls; those that were deleted have a deletionTimestamp."""
        uid = owner["metadata"]["uid"]
        found = {Key.of(pod): pod for pod in self._informer.by_index(OWNER, uid)}
        ahead = self._ahead.get(uid, {})
        for key, write in list(ahead.items()):
            if write.forget_at < clock.monotonic():
                del ahead[key]
            elif write.created is not None:
                found.setdefault(key, write.created)
            elif key in found and found[key]["metadata"]["uid"] == write.uid:
                found[key] = _terminating(found[key])
        return list(found.values())

    def taken(self, owner: Object) -> frozenset[str]:
        """Return names that the owner's Pods cannot have, as others have them."""
        return frozenset(self._taken.get(owner["metadata"]["uid"], ()))

    def waits(self, owner: Object) -> bool:
        """Whether the watch has yet to tell of a write."""
        return bool(self._ahead.get(owner["metadata"]["uid"]))

    def forget(self, uid: str) -> None:
        """Drop all memory of an owner that is gone."""
        self._ahead.pop(uid, None)
        self._unsure.pop(uid, None)
        self._taken.pop(uid, None)

    async def settle(self, owner: Object) -> None:
        """Ask the API what became of the writes whose answers were lost; call before `of`."""
        uid = owner["metadata"]["uid"]
        for key in list(self._unsure.get(uid, ())):
            cached = self._informer.items.get(key)
            try:
                stored = await self._kube.get(kinds.POD, key.namespace, key.name)
            except errors.NotFound:
                if cached is not None:
                    self._remember(owner, cached, deleted=True)
            else:
                if uid in owner_uids(stored):
                    self._remember(owner, stored, deleted="deletionTimestamp" in stored["metadata"])
            self._unsure[uid].discard(key)

    async def create(self, kind: kinds.Kind, owner: Object, bodies: Sequence[Object]) -> None:
        """Create the Pods; a name that one of the owner's Pods has already is fine.

        Raises:
            errors.Temporary: a name is another's Pod; the next plan must avoid `taken`.
            errors.ApiError, errors.Unavailable: of the first that failed; the rest was not tried.
        """
        if bodies:
            names = ", ".join(body["metadata"]["name"] for body in bodies)
            await _in_rounds(lambda body: self._create(owner, body), bodies)
            self._events.tell(_typed(kind, owner), Told("SuccessfulCreate", f"Created pod: {names}"))

    async def delete(
        self, kind: kinds.Kind, owner: Object, doomed: Sequence[pods.PodState], why: str = ""
    ) -> None:
        """Delete the Pods, gracefully; those that are gone are fine.

        Raises:
            errors.ApiError, errors.Unavailable: of the first that failed; the rest was not tried.
        """
        if doomed:
            await _in_rounds(lambda pod: self._delete(owner, pod), doomed)
            text = f"Deleted pod: {', '.join(pod.name for pod in doomed)}{f' ({why})' if why else ''}"
            self._events.tell(_typed(kind, owner), Told("SuccessfulDelete", text))

    async def _create(self, owner: Object, body: Object) -> None:
        meta = owner["metadata"]
        key = Key(meta["namespace"], body["metadata"]["name"])
        body["spec"]["nodeName"] = self._node
        try:
            created = await self._kube.create(kinds.POD, body)
        except errors.AlreadyExists:
            created = await self._kube.get(kinds.POD, *key)
            if meta["uid"] not in owner_uids(created):
                self._taken.setdefault(meta["uid"], set()).add(key.name)
                raise errors.Temporary("NameTaken", f"Pod {key} is not of {meta['name']}", 0.0) from None
        except errors.Unavailable:
            self._unsure.setdefault(meta["uid"], set()).add(key)
            raise
        self._remember(owner, created, deleted=False)

    async def _delete(self, owner: Object, pod: pods.PodState) -> None:
        meta = owner["metadata"]
        key = Key(meta["namespace"], pod.name)
        try:
            await self._kube.delete(kinds.POD, *key, uid=pod.uid)
        except errors.Unavailable:
            self._unsure.setdefault(meta["uid"], set()).add(key)
            raise
        if (cached := self._informer.items.get(key)) is not None:
            self._remember(owner, cached, deleted=True)

    def _remember(self, owner: Object, pod: Object, *, deleted: bool) -> None:
        key, uid = Key.of(pod), pod["metadata"]["uid"]
        cached = self._informer.items.get(key)
        if cached is not None and cached["metadata"]["uid"] == uid:
            if not deleted or "deletionTimestamp" in cached["metadata"]:
                return
        elif deleted and cached is None:
            pod = _terminating(pod)
        until = clock.monotonic() + FORGET_SECONDS
        known = deleted and cached is not None
        write = _Ahead(uid, None if known else pod, until)
        self._ahead.setdefault(owner["metadata"]["uid"], {})[key] = write

    def _seen(self, before: Object | None, after: Object | None) -> None:
        """Forget a write that the watch now tells of."""
        for owner in {uid for pod in (before, after) if pod is not None for uid in owner_uids(pod)}:
            ahead = self._ahead.get(owner)
            pod = after or before
            if not ahead or pod is None or (write := ahead.get(Key.of(pod))) is None:
                continue
            pending = write.created is None and after is not None and after["metadata"]["uid"] == write.uid
            if not pending or "deletionTimestamp" in pod["metadata"]:
                del ahead[Key.of(pod)]
                if not ahead:
                    del self._ahead[owner]


def owner_uids(pod: Object) -> Iterable[str]:
    """Return the uid of the Pod's controller, in a list; empty where it has none."""
    owner = pods.controller_of(pod)
    return [owner["uid"]] if owner else []


def _terminating(pod: Object) -> Object:
    stamp = clock.rfc3339(clock.now())
    return {**pod, "metadata": {"deletionTimestamp": stamp, **pod["metadata"]}}


def _typed(kind: kinds.Kind, owner: Object) -> Object:
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": owner["metadata"]}


async def _in_rounds(call: Callable[[T], Awaitable[None]], items: Sequence[T]) -> None:
    """Call for every item in rounds of 1, 2, 4, ...; the round in which one fails is the last."""
    size, start = 1, 0
    while start < len(items):
        results = await asyncio.gather(
            *(call(item) for item in items[start : start + size]), return_exceptions=True
        )
        for result in results:
            if isinstance(result, BaseException):
                raise result
        start, size = start + size, min(size * 2, MOST_AT_ONCE)

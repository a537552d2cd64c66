"""Leader election by a Lease, as client-go's: of several processes one works, and the others wait.

The clocks of two machines are never compared: a Lease has expired if its holder has not changed it for its
duration by the clock of the process that waits.
https://pkg.go.dev/k8s.io/client-go/tools/leaderelection
"""

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from serving import clock, errors
from serving.kube.connection import refusals
from serving.kube.connection.client import Kube
from serving.objects import Object
from serving.resources import kinds

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Timing:
    """The times of an election in seconds; the defaults are those of Kubernetes' own components."""

    lease: int = 15
    """Time after the last renewal until another process may acquire the Lease."""
    renew: float = 10.0
    """A leader that could not renew for this time stops, well before another process leads."""
    retry: float = 2.0
    """Pause between attempts to acquire or renew."""

    @property
    def request(self) -> float:
        """Longest request: after one over a dead connection there is time for an attempt over a new one.

        A candidate gives the next attempt `renew`, as each request of a slow API may take longer.
        """
        return self.renew / 3


class _Attempt(NamedTuple):
    """The result of an attempt to acquire or renew the Lease."""

    holder: str
    """Who has the Lease."""
    sent: float = 0.0
    """When this process sent the write, in monotonic seconds: for others the Lease expires later than if the
    write had been executed then. 0 without a write."""


class LeaderElection:
    """One candidate for one Lease."""

    def __init__(self, kube: Kube, namespace: str, name: str, host: str, timing: Timing = Timing()) -> None:
        """Stand for a Lease.

        Args:
            kube: must be allowed to get, create and update it.
            namespace: of the Lease.
            name: of the Lease.
            host: of this process, such as its Pod; a random part makes the identity unique.
            timing: equal for all candidates.
        """
        self._kube = kube
        self._namespace = namespace
        self._name = name
        self._identity = f"{host}_{uuid.uuid4()}"
        self._timing = timing
        self._seen: tuple[Any, ...] = ()
        """`holderIdentity` and `renewTime` of the Lease when it was last read."""
        self._seen_at = 0.0
        """When these two values were first read, in monotonic seconds."""

    async def run(
        self, work: Callable[[], Awaitable[None]], on_waiting: Callable[[], None] = lambda: None
    ) -> None:
        """Do the work once this process leads; cancel the work when this process no longer leads.

        Args:
            work: runs until cancelled.
            on_waiting: called when the API names another process as the leader, and when that one changes.

        Raises:
            errors.LeadershipLost: the process must end, as parts of the work may not have noticed.
        """
        renewed = await self._acquire(on_waiting)
        try:
            async with asyncio.TaskGroup() as group:
                keeping = group.create_task(self._keep(renewed))
                await work()
                keeping.cancel()
        except* errors.LeadershipLost as lost:
            raise errors.LeadershipLost(str(lost.exceptions[0])) from None
        finally:
            await self._release()

    async def _acquire(self, on_waiting: Callable[[], None]) -> float:
        """Wait until this process has the Lease; return when it sent the write, in monotonic seconds."""
        leader = None
        while True:
            try:
                holder, sent = await self._attempt()
            except (errors.ApiError, errors.Unavailable) as error:
                log.info("Lease %s/%s cannot be acquired: %s", self._namespace, self._name, error)
            else:
                if holder == self._identity:
                    log.info("%s leads", self._identity)
                    return sent
                if holder != leader:
                    log.info("%s leads; waiting", holder)
                    on_waiting()
                    leader = holder
            await asyncio.sleep(self._timing.retry)

    async def _keep(self, renewed: float) -> None:
        """Renew the Lease, which was last renewed at `renewed`, until cancelled.

        Raises:
            errors.LeadershipLost: another process leads, or no renewal has succeeded for `Timing.renew`.
        """
        problem = ""
        while True:
            await asyncio.sleep(self._timing.retry)
            try:
                async with asyncio.timeout(renewed + self._timing.renew - clock.monotonic()):
                    holder, sent = await self._attempt()
            except (errors.ApiError, errors.Unavailable, TimeoutError) as error:
                problem = str(error) or "no answer"
            else:
                if holder != self._identity:
                    raise errors.LeadershipLost(f"{holder} leads")
                renewed = sent
            if clock.monotonic() - renewed >= self._timing.renew:
                raise errors.LeadershipLost(f"not renewed for {self._timing.renew:g} s: {problem}")

    async def _attempt(self) -> _Attempt:
        """Acquire or renew the Lease if it is free or this process has it.

        With an API that takes longer than `Timing.request` a process could not keep the Lease.

        Raises:
            errors.Busy: the API refuses a request; the next attempt comes after `Timing.retry` all the same.
            errors.Unavailable: also after `Timing.request` without an answer.
            errors.Conflict, errors.AlreadyExists: somebody else wrote it meanwhile; the next attempt reads
                who has it.
        """
        try:
            lease = await self._answered(self._kube.get(kinds.LEASE, self._namespace, self._name))
        except errors.NotFound:
            lease = {"metadata": {"namespace": self._namespace, "name": self._name}}
        spec = lease.get("spec") or {}
        holder = str(spec.get("holderIdentity") or "")
        if holder not in ("", self._identity) and not self._has_expired(spec):
            return _Attempt(holder)
        desired = {**lease, "spec": self._renewed(spec)}
        write = self._kube.update if "resourceVersion" in lease["metadata"] else self._kube.create
        sent = clock.monotonic()
        await self._answered(write(kinds.LEASE, desired))
        return _Attempt(self._identity, sent)

    async def _answered(self, request: Awaitable[Object]) -> Object:
        longest = self._timing.request
        try:
            # A refusal that is waited for here would look like no answer.
            with refusals.passed_on():
                async with asyncio.timeout(longest):
                    return await request
        except TimeoutError as error:
            raise errors.Unavailable(f"no answer within {longest:.2g} s") from error

    def _has_expired(self, spec: Object) -> bool:
        now, seen = clock.monotonic(), (spec["holderIdentity"], spec.get("renewTime"))
        if seen != self._seen:
            self._seen, self._seen_at = seen, now
        return bool(now - self._seen_at >= (spec.get("leaseDurationSeconds") or self._timing.lease))

    def _renewed(self, spec: Object) -> Object:
        """Return the spec of a Lease that this process acquires or renews now; `spec` is the present one."""
        now = clock.rfc3339_micro(clock.now())
        is_new = spec.get("holderIdentity") != self._identity
        return {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": self._timing.lease,
            "acquireTime": now if is_new else spec.get("acquireTime"),
            "renewTime": now,
            "leaseTransitions": int(spec.get("leaseTransitions") or 0) + is_new,
        }

    async def _release(self) -> None:
        """Free the Lease if this process still has it, so that the next one need not wait for its expiry."""
        try:
            async with asyncio.timeout(self._timing.retry):
                lease = await self._kube.get(kinds.LEASE, self._namespace, self._name)
                if lease["spec"].get("holderIdentity") == self._identity:
                    spec = {**lease["spec"], "holderIdentity": ""}
                    await self._kube.update(kinds.LEASE, {**lease, "spec": spec})
        except (errors.ApiError, errors.Unavailable, TimeoutError) as error:
            log.info("Lease %s/%s is not released: %s", self._namespace, self._name, error or "no answer")

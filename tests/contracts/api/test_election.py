"""Leader election: one process works at a time, and another takes over when it stops, hangs or is cut off."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from serving import clock, errors
from serving.kube import Kube
from serving.kube.election import LeaderElection, Timing
from serving.objects import Object
from serving.resources import kinds
from tests.rig.control_plane.convergence import until

TIMING = Timing(lease=2, renew=1.0, retry=0.1)


class Connection:
    """The requests of one process, which can be cut off."""

    def __init__(self, kube: Kube) -> None:
        self._kube = kube
        self.is_cut = False
        self.annotations = 0
        """Updates before which somebody annotates the object."""
        self.is_dead = False
        """Whether the next request is lost, as over a connection whose peer has vanished."""
        self.written_at: list[float] = []
        """When each write reached the API, in monotonic seconds."""

    async def get(self, *arguments: Any) -> Object:
        return await self._request(self._kube.get(*arguments))

    async def create(self, *arguments: Any) -> Object:
        self.written_at.append(clock.monotonic())
        return await self._request(self._kube.create(*arguments))

    async def update(self, kind: kinds.Kind, obj: Object) -> Object:
        if self.annotations:
            self.annotations -= 1
            meta = obj["metadata"]
            patch = {"metadata": {"annotations": {"left": str(self.annotations)}}}
            await self._kube.patch(kind, meta["namespace"], meta["name"], patch)
        self.written_at.append(clock.monotonic())
        return await self._request(self._kube.update(kind, obj))

    async def _request(self, request: Any) -> Object:
        if self.is_cut:
            request.close()
            raise errors.Unavailable("cut off")
        if self.is_dead:
            self.is_dead = False
            request.close()
            await asyncio.Event().wait()
        answer: Object = await request
        return answer


class Processes:
    """Candidates for one Lease; `working` names those that work now, `history` all that ever did."""

    def __init__(self, kube: Kube, namespace: str) -> None:
        self.kube = kube
        self.namespace = namespace
        self.working: set[str] = set()
        self.history: list[str] = []
        self.connections: dict[str, Connection] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}

    def start(self, name: str) -> None:
        connection: Any = Connection(self.kube)
        election = LeaderElection(connection, self.namespace, "leader", name, TIMING)
        self.connections[name] = connection
        self.tasks[name] = asyncio.create_task(election.run(lambda: self._work(name)))

    async def _work(self, name: str) -> None:
        self.working.add(name)
        self.history.append(name)
        assert self.working == {name}, "two lead"
        try:
            await asyncio.Event().wait()
        finally:
            self.working.discard(name)

    async def lease(self) -> Object:
        return await self.kube.get(kinds.LEASE, self.namespace, "leader")


@asynccontextmanager
async def processes(kube: Kube, namespace: str, *names: str) -> AsyncIterator[Processes]:
    running = Processes(kube, namespace)
    for name in names:
        running.start(name)
    try:
        yield running
    finally:
        for task in running.tasks.values():
            task.cancel()
        await asyncio.gather(*running.tasks.values(), return_exceptions=True)


async def test_next_process_leads_at_once_when_the_leader_stops(kube: Kube, namespace: str) -> None:
    async with processes(kube, namespace, "a", "b", "c") as running:
        for count in (1, 2, 3):
            await until(lambda count=count: len(running.history) == count)  # type: ignore[misc]
            leader = running.history[-1]
            running.tasks[leader].cancel()
            await asyncio.gather(running.tasks[leader], return_exceptions=True)
            holder = (await running.lease())["spec"].get("holderIdentity") or ""
            assert not holder.startswith(leader), "the lease is not freed"
    assert sorted(running.history) == ["a", "b", "c"]


async def test_leader_that_reaches_no_api_stops_before_another_leads(kube: Kube, namespace: str) -> None:
    async with processes(kube, namespace, "a") as running:
        await until(lambda: running.working == {"a"})
        running.start("b")
        running.connections["a"].is_cut = True
        await until(lambda: not running.working)
        assert running.history == ["a"], "b leads before a has stopped"
        await until(lambda: running.working == {"b"})
        with pytest.raises(errors.LeadershipLost, match=r"not renewed for 1 s: cut off"):
            await running.tasks["a"]
        assert (await running.lease())["spec"]["leaseTransitions"] == 2


async def test_leader_goes_on_when_its_connection_is_dead_and_a_new_one_is_not(
    kube: Kube, namespace: str
) -> None:
    async with processes(kube, namespace, "a") as running:
        await until(lambda: running.working == {"a"})
        connection = running.connections["a"]
        connection.is_dead = True
        await until(lambda: not connection.is_dead)
        before = len(connection.written_at)
        await until(lambda: len(connection.written_at) > before or not running.working)
        assert running.working == {"a"}


async def test_time_without_a_renewal_begins_when_the_lease_is_written(kube: Kube, namespace: str) -> None:
    connection: Any = Connection(kube)
    election = LeaderElection(connection, namespace, "leader", "a", TIMING)
    renewed = await election._acquire(lambda: None)
    assert 0 < renewed <= connection.written_at[0]


async def test_leader_goes_on_when_somebody_annotates_its_lease(kube: Kube, namespace: str) -> None:
    async with processes(kube, namespace, "a") as running:
        await until(lambda: running.working == {"a"})
        running.connections["a"].annotations = 2
        await until(lambda: not running.connections["a"].annotations)
        before = await running.lease()
        while (after := await running.lease())["spec"]["renewTime"] == before["spec"]["renewTime"]:
            assert running.working == {"a"}
            await asyncio.sleep(0.02)
        assert after["metadata"]["annotations"] == {"left": "0"}
        assert after["spec"]["leaseTransitions"] == 1
        assert running.working == {"a"}


async def test_leader_stops_when_others_write_its_lease_for_too_long(kube: Kube, namespace: str) -> None:
    async with processes(kube, namespace, "a") as running:
        await until(lambda: running.working == {"a"})
        running.connections["a"].annotations = 1_000_000
        await until(lambda: not running.working)
        with pytest.raises(errors.LeadershipLost, match=r"not renewed for 1 s"):
            await running.tasks["a"]


async def test_leader_stops_when_another_has_its_lease(kube: Kube, namespace: str) -> None:
    async with processes(kube, namespace, "a") as running:
        await until(lambda: running.working == {"a"})
        while True:
            lease = await running.lease()
            taken = {**lease, "spec": {**lease["spec"], "holderIdentity": "somebody"}}
            try:
                await kube.update(kinds.LEASE, taken)
            except errors.Conflict:
                continue
            break
        with pytest.raises(errors.LeadershipLost, match="somebody leads"):
            await running.tasks["a"]
        assert not running.working
        assert (await running.lease())["spec"]["holderIdentity"] == "somebody", "only its own is released"


async def test_lease_of_a_killed_leader_is_free_after_its_duration(kube: Kube, namespace: str) -> None:
    async with processes(kube, namespace, "a") as running:
        await until(lambda: running.working == {"a"})
        running.connections["a"].is_cut = True
        running.tasks["a"].cancel()
        await asyncio.gather(running.tasks["a"], return_exceptions=True)
        started = asyncio.get_running_loop().time()
        running.start("b")
        await until(lambda: running.working == {"b"})
        assert asyncio.get_running_loop().time() - started >= TIMING.lease


async def test_error_of_the_work_ends_the_leader_and_frees_the_lease(kube: Kube, namespace: str) -> None:
    async def work() -> None:
        raise errors.UserError("cannot work")

    with pytest.raises(ExceptionGroup) as caught:
        await LeaderElection(kube, namespace, "leader", "a", TIMING).run(work)
    assert caught.group_contains(errors.UserError, match="cannot work")
    assert not (await kube.get(kinds.LEASE, namespace, "leader"))["spec"].get("holderIdentity")

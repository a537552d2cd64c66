"""The bounds of held requests, and the choice of the replica for the next one."""

from dataclasses import replace

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from serving.router.activator.request_queue import BODY_TOO_LARGE, QueueTotals, RequestQueue
from serving.router.plan.service import Endpoint
from serving.settings import ActivatorSettings

SETTINGS = replace(
    ActivatorSettings(), held_per_backend=4, held=6, bytes_per_backend=40, bytes=60, body_bytes=30, permits=2
)
A, B = Endpoint("127.77.0.1", 8080), Endpoint("127.77.0.2", 8080)


def queue_of(*tickets: int, totals: QueueTotals | None = None, **settings: int) -> RequestQueue:
    queue = RequestQueue(replace(SETTINGS, **settings), totals or QueueTotals())
    for ticket in tickets:
        assert queue.admit(ticket) is None
        queue.submit(ticket)
    return queue


def dispatched(queue: RequestQueue) -> list[tuple[int, Endpoint]]:
    return [(ticket, replica) for ticket, replica in queue.dispatch()]


def test_no_request_is_dispatched_without_a_replica() -> None:
    assert dispatched(queue_of(1, 2)) == []


def test_requests_are_dispatched_in_order_of_arrival_up_to_the_permits() -> None:
    queue = queue_of(1, 2, 3, 4)
    queue.set_replicas([A])
    assert dispatched(queue) == [(1, A), (2, A)]
    assert dispatched(queue) == []
    queue.release_replica(2)
    assert dispatched(queue) == [(3, A)]
    assert len(queue) == 2


def test_a_new_replica_gets_requests_at_once() -> None:
    queue = queue_of(1, 2, 3, 4)
    queue.set_replicas([A])
    dispatched(queue)
    queue.set_replicas([A, B])
    assert dispatched(queue) == [(3, B), (4, B)]


def test_a_resubmitted_request_keeps_its_place_and_gets_another_replica() -> None:
    queue = queue_of(1, 2, 3, permits=1)
    queue.set_replicas([A, B])
    assert dispatched(queue) == [(1, A), (2, B)]
    queue.mark_failed(1)
    queue.release_replica(2)
    queue.submit(1)
    assert dispatched(queue) == [(1, B), (3, A)]


def test_a_removed_request_frees_its_place() -> None:
    queue = queue_of(1, 2, 3, 4)
    assert queue.admit(5) is not None
    queue.remove(1)
    assert queue.admit(5) is None
    queue.set_replicas([A])
    assert [ticket for ticket, _ in dispatched(queue)] == [2, 3]


def test_count_and_bytes_are_bounded_per_backend_and_in_total() -> None:
    totals = QueueTotals()
    first, second = queue_of(1, 2, 3, 4, totals=totals), queue_of(1, 2, totals=totals)
    refused = [
        first.admit(5),
        second.admit(3),
        second.add_bytes(1, 31),
        first.add_bytes(1, 30),
        first.add_bytes(2, 11),
    ]
    assert [r and r.reason for r in refused] == [
        "TooManyWaiting",
        "TooManyWaiting",
        BODY_TOO_LARGE,
        None,
        "TooManyBytesWaiting",
    ]
    assert second.add_bytes(1, 30) is None
    assert (totals.bytes, totals.count) == (60, 6)
    assert second.add_bytes(2, 1) is not None
    first.remove(1)
    assert second.add_bytes(2, 10) is None


class Queues(RuleBasedStateMachine):
    """Two backends, and all events of their requests."""

    def __init__(self) -> None:
        super().__init__()
        self.totals = QueueTotals()
        self.queues = [RequestQueue(SETTINGS, self.totals) for _ in range(2)]
        self.held: list[dict[int, int]] = [{}, {}]
        self.waiting: list[set[int]] = [set(), set()]
        self.sent: list[dict[int, Endpoint]] = [{}, {}]
        self.next = 0

    @rule(backend=st.integers(0, 1))
    def arrive(self, backend: int) -> None:
        self.next += 1
        if self.queues[backend].admit(self.next) is None:
            self.held[backend][self.next] = 0

    @rule(backend=st.integers(0, 1), data=st.data(), size=st.integers(1, 35))
    def read(self, backend: int, data: st.DataObject, size: int) -> None:
        if fresh := sorted(self.held[backend].keys() - self.waiting[backend] - self.sent[backend].keys()):
            ticket = data.draw(st.sampled_from(fresh))
            if self.queues[backend].add_bytes(ticket, size) is None:
                self.held[backend][ticket] += size

    @rule(backend=st.integers(0, 1), data=st.data())
    def submit(self, backend: int, data: st.DataObject) -> None:
        if fresh := sorted(self.held[backend].keys() - self.waiting[backend] - self.sent[backend].keys()):
            ticket = data.draw(st.sampled_from(fresh))
            self.queues[backend].submit(ticket)
            self.waiting[backend].add(ticket)

    @rule(backend=st.integers(0, 1), replicas=st.sets(st.sampled_from([A, B])))
    def set_replicas(self, backend: int, replicas: set[Endpoint]) -> None:
        self.queues[backend].set_replicas(sorted(replicas))

    @rule(backend=st.integers(0, 1))
    def dispatch(self, backend: int) -> None:
        dispatches = self.queues[backend].dispatch()
        tickets = [ticket for ticket, _ in dispatches]
        waiting = sorted(self.waiting[backend] - self.sent[backend].keys())
        assert tickets == waiting[: len(tickets)], "a request was overtaken"
        for ticket, replica in dispatches:
            assert replica in self.queues[backend].replicas
            self.sent[backend][ticket] = replica

    @rule(backend=st.integers(0, 1), data=st.data(), succeeded=st.booleans())
    @precondition(lambda self: any(self.sent))
    def answer(self, backend: int, data: st.DataObject, *, succeeded: bool) -> None:
        if self.sent[backend]:
            ticket = data.draw(st.sampled_from(sorted(self.sent[backend])))
            del self.sent[backend][ticket]
            self.waiting[backend].discard(ticket)
            if succeeded:
                self.queues[backend].remove(ticket)
                del self.held[backend][ticket]
            else:
                self.queues[backend].mark_failed(ticket)

    @rule(backend=st.integers(0, 1), data=st.data())
    def hang_up(self, backend: int, data: st.DataObject) -> None:
        if self.held[backend]:
            ticket = data.draw(st.sampled_from(sorted(self.held[backend])))
            self.queues[backend].remove(ticket)
            del self.held[backend][ticket]
            self.waiting[backend].discard(ticket)
            self.sent[backend].pop(ticket, None)

    @invariant()
    def nothing_is_counted_twice_or_forgotten(self) -> None:
        assert self.totals.count == sum(map(len, self.held)) <= SETTINGS.held
        assert self.totals.bytes == sum(sum(held.values()) for held in self.held) <= SETTINGS.bytes
        for queue, held, sent in zip(self.queues, self.held, self.sent, strict=True):
            assert len(queue) == len(held) - len(sent)
            assert len(held) <= SETTINGS.held_per_backend
            assert sum(held.values()) <= SETTINGS.bytes_per_backend
            for replica in (A, B):
                assert list(sent.values()).count(replica) <= SETTINGS.permits


TestQueues = Queues.TestCase

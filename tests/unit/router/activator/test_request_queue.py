"""Who is held, and whose turn it is."""

from dataclasses import replace

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from serving.router.activator.request_queue import BODY_TOO_LARGE, Line, Total
from serving.router.plan.service import Endpoint
from serving.settings import ActivatorSettings

SETTINGS = replace(
    ActivatorSettings(), held_per_backend=4, held=6, bytes_per_backend=40, bytes=60, body_bytes=30, permits=2
)
A, B = Endpoint("127.77.0.1", 8080), Endpoint("127.77.0.2", 8080)


def line(*tickets: int, total: Total | None = None, **settings: int) -> Line:
    found = Line(replace(SETTINGS, **settings), total or Total())
    for ticket in tickets:
        assert found.enter(ticket) is None
        found.ask(ticket)
    return found


def served(found: Line) -> list[tuple[int, Endpoint]]:
    return [(turn.ticket, turn.replica) for turn in found.turns()]


def test_nobody_has_a_turn_without_a_replica() -> None:
    assert served(line(1, 2)) == []


def test_turns_come_in_the_order_of_arrival_and_no_more_than_a_replica_takes() -> None:
    found = line(1, 2, 3, 4)
    found.aim([A])
    assert served(found) == [(1, A), (2, A)]
    assert served(found) == []
    found.begun(2)
    assert served(found) == [(3, A)]
    assert len(found) == 2


def test_a_replica_that_comes_later_takes_its_part_at_once() -> None:
    found = line(1, 2, 3, 4)
    found.aim([A])
    served(found)
    found.aim([A, B])
    assert served(found) == [(3, B), (4, B)]


def test_one_that_is_asked_again_has_kept_its_place_and_gets_another_replica() -> None:
    found = line(1, 2, 3, permits=1)
    found.aim([A, B])
    assert served(found) == [(1, A), (2, B)]
    found.failed(1)
    found.begun(2)
    found.ask(1)
    assert served(found) == [(1, B), (3, A)]


def test_who_hangs_up_is_forgotten_and_its_place_is_free() -> None:
    found = line(1, 2, 3, 4)
    assert found.enter(5) is not None
    found.leave(1)
    assert found.enter(5) is None
    found.aim([A])
    assert [ticket for ticket, _ in served(found)] == [2, 3]


def test_count_and_bytes_are_bounded_for_a_backend_and_for_all() -> None:
    total = Total()
    first, second = line(1, 2, 3, 4, total=total), line(1, 2, total=total)
    refused = [first.enter(5), second.enter(3), second.grow(1, 31), first.grow(1, 30), first.grow(2, 11)]
    assert [r and r.reason for r in refused] == [
        "TooManyWaiting", "TooManyWaiting", BODY_TOO_LARGE, None, "TooManyBytesWaiting",
    ]  # fmt: skip
    assert second.grow(1, 30) is None
    assert (total.bytes, total.count) == (60, 6)
    assert second.grow(2, 1) is not None
    first.leave(1)
    assert second.grow(2, 10) is None


class Lines(RuleBasedStateMachine):
    """Two backends, and everything that can happen to their requests."""

    def __init__(self) -> None:
        super().__init__()
        self.total = Total()
        self.lines = [Line(SETTINGS, self.total) for _ in range(2)]
        self.held: list[dict[int, int]] = [{}, {}]
        self.asking: list[set[int]] = [set(), set()]
        self.sent: list[dict[int, Endpoint]] = [{}, {}]
        self.next = 0

    @rule(which=st.integers(0, 1))
    def arrive(self, which: int) -> None:
        self.next += 1
        if self.lines[which].enter(self.next) is None:
            self.held[which][self.next] = 0

    @rule(which=st.integers(0, 1), data=st.data(), size=st.integers(1, 35))
    def read(self, which: int, data: st.DataObject, size: int) -> None:
        if fresh := sorted(self.held[which].keys() - self.asking[which] - self.sent[which].keys()):
            ticket = data.draw(st.sampled_from(fresh))
            if self.lines[which].grow(ticket, size) is None:
                self.held[which][ticket] += size

    @rule(which=st.integers(0, 1), data=st.data())
    def ask(self, which: int, data: st.DataObject) -> None:
        if fresh := sorted(self.held[which].keys() - self.asking[which] - self.sent[which].keys()):
            ticket = data.draw(st.sampled_from(fresh))
            self.lines[which].ask(ticket)
            self.asking[which].add(ticket)

    @rule(which=st.integers(0, 1), replicas=st.sets(st.sampled_from([A, B])))
    def aim(self, which: int, replicas: set[Endpoint]) -> None:
        self.lines[which].aim(sorted(replicas))

    @rule(which=st.integers(0, 1))
    def turn(self, which: int) -> None:
        turns = self.lines[which].turns()
        tickets = [turn.ticket for turn in turns]
        waiting = sorted(self.asking[which] - self.sent[which].keys())
        assert tickets == waiting[: len(tickets)], "somebody was overtaken"
        for ticket, replica in turns:
            assert replica in self.lines[which].replicas
            self.sent[which][ticket] = replica

    @rule(which=st.integers(0, 1), data=st.data(), well=st.booleans())
    @precondition(lambda self: any(self.sent))
    def answer(self, which: int, data: st.DataObject, *, well: bool) -> None:
        if self.sent[which]:
            ticket = data.draw(st.sampled_from(sorted(self.sent[which])))
            del self.sent[which][ticket]
            self.asking[which].discard(ticket)
            if well:
                self.lines[which].leave(ticket)
                del self.held[which][ticket]
            else:
                self.lines[which].failed(ticket)

    @rule(which=st.integers(0, 1), data=st.data())
    def hang_up(self, which: int, data: st.DataObject) -> None:
        if self.held[which]:
            ticket = data.draw(st.sampled_from(sorted(self.held[which])))
            self.lines[which].leave(ticket)
            del self.held[which][ticket]
            self.asking[which].discard(ticket)
            self.sent[which].pop(ticket, None)

    @invariant()
    def nothing_is_counted_twice_or_forgotten(self) -> None:
        assert self.total.count == sum(map(len, self.held)) <= SETTINGS.held
        assert self.total.bytes == sum(sum(held.values()) for held in self.held) <= SETTINGS.bytes
        for line_, held, sent in zip(self.lines, self.held, self.sent, strict=True):
            assert len(line_) == len(held) - len(sent)
            assert len(held) <= SETTINGS.held_per_backend
            assert sum(held.values()) <= SETTINGS.bytes_per_backend
            for replica in (A, B):
                assert list(sent.values()).count(replica) <= SETTINGS.permits


TestLines = Lines.TestCase

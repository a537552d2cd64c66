"""Properties of batches: each request is in one batch, in order, and no batch is too large."""

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from serving.runtimes.batching.batch_queue import BatchQueue

ENTER = st.tuples(st.just("enter"), st.integers(1, 6), st.sampled_from("ab"))
LEAVE = st.tuples(st.just("leave"), st.integers(0, 20), st.just(""))
TAKE = st.tuples(st.just("take"), st.integers(0, 3), st.just(""))
DONE = st.tuples(st.just("done"), st.just(0), st.just(""))
STEPS = st.lists(st.one_of(ENTER, ENTER, LEAVE, TAKE, TAKE, DONE), max_size=60)


@dataclass
class QueueModel:
    """A model of the queue: calls and the batches that it returned."""

    queue: BatchQueue
    now: float = 0.0
    entered: dict[int, tuple[int, str, float]] = field(default_factory=dict)
    waiting: list[int] = field(default_factory=list)
    cancelled: set[int] = field(default_factory=set)
    batches: list[tuple[int, ...]] = field(default_factory=list)
    busy: bool = False

    def enter(self, rows: int, form: str) -> None:
        ticket = len(self.entered)
        was_full = len(self.waiting) >= self.queue.room
        assert self.queue.enter(ticket, rows, form, self.now) is not was_full
        if not was_full:
            self.entered[ticket] = (rows, form, self.now)
            self.waiting.append(ticket)

    def leave(self, number: int) -> None:
        ticket = list(self.entered)[number % len(self.entered)] if self.entered else number
        self.queue.leave(ticket)
        if ticket in self.waiting:
            self.waiting.remove(ticket)
            self.cancelled.add(ticket)

    def take(self, later: int) -> None:
        self.now += later
        batch = self.queue.take(self.now)
        self.check(batch)
        self.busy = self.busy or bool(batch)
        self.batches += [batch] if batch else []
        self.waiting = [ticket for ticket in self.waiting if ticket not in batch]

    def check(self, batch: tuple[int, ...]) -> None:
        if self.busy or not self.waiting:
            assert batch == ()
            return
        oldest = self.waiting[0]
        rows, form, since = self.entered[oldest]
        alike = [ticket for ticket in self.waiting if self.entered[ticket][1] == form]
        could, total = [oldest], rows
        for ticket in alike[1:]:
            total += self.entered[ticket][0]
            if total > self.queue.size:
                break
            could.append(ticket)
        is_full = total >= self.queue.size
        is_time = self.now >= since + self.queue.patience
        assert batch == (tuple(could) if is_full or is_time else ())

    def done(self) -> None:
        self.queue.done()
        self.busy = False

    def finish(self) -> None:
        self.queue.hurry()
        self.done()
        while self.waiting:
            self.take(0)
            self.done()


def played(steps: list[tuple[str, int, str]], size: int, patience: int, room: int = 1000) -> QueueModel:
    queue_model = QueueModel(BatchQueue(size, float(patience), room))
    for action, number, form in steps:
        if action == "enter":
            queue_model.enter(number, form)
        elif action == "leave":
            queue_model.leave(number)
        elif action == "take":
            queue_model.take(number)
        else:
            queue_model.done()
    return queue_model


@given(STEPS, st.integers(1, 8), st.integers(0, 3), st.integers(1, 6))
def test_every_waiting_request_is_in_exactly_one_batch(
    steps: list[tuple[str, int, str]], size: int, patience: int, room: int
) -> None:
    queue_model = played(steps, size, patience, room)
    queue_model.finish()
    answered = [ticket for batch in queue_model.batches for ticket in batch]
    assert sorted(answered) == sorted(queue_model.entered.keys() - queue_model.cancelled)
    assert len(queue_model.queue) == 0


@given(STEPS, st.integers(1, 8), st.integers(0, 3))
def test_a_batch_has_one_form_and_at_most_its_size_or_one_request(
    steps: list[tuple[str, int, str]], size: int, patience: int
) -> None:
    queue_model = played(steps, size, patience)
    queue_model.finish()
    for batch in queue_model.batches:
        assert len({queue_model.entered[ticket][1] for ticket in batch}) == 1
        assert len(batch) == 1 or sum(queue_model.entered[ticket][0] for ticket in batch) <= size


@given(STEPS, st.integers(1, 8), st.integers(0, 3))
def test_requests_of_one_form_are_answered_in_order(
    steps: list[tuple[str, int, str]], size: int, patience: int
) -> None:
    queue_model = played(steps, size, patience)
    queue_model.finish()
    for form in "ab":
        order = [t for batch in queue_model.batches for t in batch if queue_model.entered[t][1] == form]
        assert order == [ticket for ticket in queue_model.entered if ticket in order]


def test_an_idle_replica_never_waits_without_patience() -> None:
    queue = BatchQueue(size=8, patience=0, room=10)
    assert queue.due() is None
    queue.enter(1, 1, "a", now=5.0)
    assert queue.due() == 5.0
    assert queue.take(5.0) == (1,)


def test_a_request_waits_until_its_patience_ends_or_the_batch_is_full() -> None:
    queue = BatchQueue(size=3, patience=2.0, room=10)
    queue.enter(1, 1, "a", now=5.0)
    assert (queue.take(6.9), queue.due()) == ((), 7.0)
    assert queue.take(7.0) == (1,)
    queue.done()
    for ticket in (2, 3, 4, 5):
        queue.enter(ticket, 1, "a", now=8.0)
    assert queue.take(8.0) == (2, 3, 4)
    queue.done()
    assert queue.take(8.0) == ()


def test_time_spent_waiting_for_a_busy_replica_counts() -> None:
    queue = BatchQueue(size=3, patience=2.0, room=10)
    queue.enter(1, 1, "a", now=0.0)
    assert queue.take(2.0) == (1,)
    queue.enter(2, 1, "a", now=2.0)
    assert queue.due() is None
    queue.done()
    assert queue.take(4.0) == (2,)


def test_a_batch_is_due_when_the_next_request_does_not_fit() -> None:
    queue = BatchQueue(size=4, patience=9.0, room=10)
    queue.enter(1, 3, "a", now=0.0)
    assert queue.take(0.0) == ()
    queue.enter(2, 2, "a", now=0.0)
    assert queue.take(0.0) == (1,)


def test_the_size_is_halved_after_a_failed_batch_down_to_one() -> None:
    queue = BatchQueue(size=32, patience=0, room=10)
    sizes = []
    for rows in (12, 6, 3, 1):
        queue.shrink(rows)
        sizes.append(queue.size)
    assert sizes == [6, 3, 1, 1]

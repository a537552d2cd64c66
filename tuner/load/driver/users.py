"""The users that locust runs where nobody gave a locustfile: those of a closed loop, and the one who sends an open loop."""

import itertools
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import gevent
import locust
from locust.user.task import LOCUST_STATE_RUNNING

from tuner.load.driver import arrivals
from tuner.load.driver.http_client import RecordingClient
from tuner.load.driver.latency_log import LatencyLog
from tuner.load.driver.timer import Timer
from tuner.load.plan import LoadRequest, Mode


@dataclass
class Job:
    """What this process is to do."""

    url: str
    mode: Mode
    requests: list[LoadRequest]
    seed: int
    number: int
    """Of this process."""
    processes: int
    timeout: float
    most_unanswered: int
    recorder: LatencyLog = field(default_factory=LatencyLog)
    rate: float = 0.0
    """Of this process's part of an open loop, in requests per second; 0 sends nothing."""
    alarm: Timer = field(default_factory=Timer)
    """Rung when the rate changes."""
    new: set[object] = field(default_factory=set)
    """Users of a closed loop whose first request is not over."""

    def turns(self) -> Iterator[LoadRequest]:
        """Yield the requests that are this process's, for ever."""
        count = len(self.requests)
        for turn in itertools.count(self.number, self.processes):
            yield self.requests[turn % count]

    def gaps(self) -> Iterator[float]:
        """Yield the gaps of an open loop of rate 1."""
        if all(request.at is not None for request in self.requests):
            return arrivals.recorded(self.requests, self.number, self.processes)
        return arrivals.poisson(self.seed, self.number)


def closed(job: Job) -> type[locust.User]:
    """Return users who ask the next request as soon as they have their answer."""
    requests = job.turns()

    class Asking(locust.User):  # type: ignore[misc]
        def on_start(self) -> None:
            job.new.add(self)
            self.asker = RecordingClient(job.url, job.recorder, timeout=job.timeout, connections=1)

        @locust.task  # type: ignore[untyped-decorator]
        def ask(self) -> None:
            while self._state == LOCUST_STATE_RUNNING:
                self.asker.ask(next(requests))
                job.new.discard(self)

        def on_stop(self) -> None:
            job.new.discard(self)

    return Asking


def opened(job: Job) -> type[locust.User]:
    """Return the user who sends on schedule, whatever has been answered."""
    requests, gaps = job.turns(), job.gaps()
    asker = RecordingClient(job.url, job.recorder, timeout=job.timeout, connections=job.most_unanswered)

    def send(due: float) -> None:
        request = next(requests)
        if len(job.recorder.unanswered) < job.most_unanswered:
            gevent.spawn(asker.ask, request, due)
            return
        now = time.monotonic()
        error = f"not sent: {job.most_unanswered} requests had no answer"
        job.recorder.record(due, now, error, behind=now - due)

    def schedule(rate: float) -> None:
        """Send at this rate until it is another; a moment that has passed is not waited for, and never skipped."""
        due = time.monotonic() + next(gaps) / rate
        while job.rate == rate:
            if due > time.monotonic():
                job.alarm.wait_until(due)
                continue
            send(due)
            due += next(gaps) / rate
            gevent.sleep(0)

    class Sending(locust.User):  # type: ignore[misc]
        @locust.task  # type: ignore[untyped-decorator]
        def send(self) -> None:
            while self._state == LOCUST_STATE_RUNNING:
                if job.rate > 0:
                    schedule(job.rate)
                else:
                    job.alarm.wait_until(time.monotonic() + 1)

    return Sending

"""The locust users of a load without a locustfile: users of a closed loop, the sender of an open one."""

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
class ProcessLoad:
    """The load of this process: its requests, their timing and their log."""

    url: str
    mode: Mode
    requests: list[LoadRequest]
    seed: int
    number: int
    """Number of this locust process, from 0."""
    processes: int
    """Number of locust processes."""
    timeout: float
    """Seconds after which a request counts as failed."""
    most_unanswered: int
    """Greatest number of unanswered requests of this process in an open loop; others are not sent."""
    log: LatencyLog = field(default_factory=LatencyLog)
    rate: float = 0.0
    """This process's share of an open loop's rate, in requests per second; 0 sends nothing."""
    timer: Timer = field(default_factory=Timer)
    """Woken when the rate changes."""
    new_users: set[object] = field(default_factory=set)
    """Users of a closed loop that wait for their first response."""

    def turns(self) -> Iterator[LoadRequest]:
        """Yield this process's requests for ever: the processes take all requests in turn."""
        count = len(self.requests)
        for turn in itertools.count(self.number, self.processes):
            yield self.requests[turn % count]

    def gaps(self) -> Iterator[float]:
        """Yield the gaps between this process's requests in an open loop, with a mean of 1."""
        if all(request.at is not None for request in self.requests):
            return arrivals.recorded(self.requests, self.number, self.processes)
        return arrivals.poisson(self.seed, self.number)


def closed(load: ProcessLoad) -> type[locust.User]:
    """Return users that send the next request as soon as they have a response."""
    requests = load.turns()

    class ClosedLoopUser(locust.User):  # type: ignore[misc]
        def on_start(self) -> None:
            load.new_users.add(self)
            self.client = RecordingClient(load.url, load.log, timeout=load.timeout, connections=1)

        @locust.task  # type: ignore[untyped-decorator]
        def send_requests(self) -> None:
            while self._state == LOCUST_STATE_RUNNING:
                self.client.send(next(requests))
                load.new_users.discard(self)

        def on_stop(self) -> None:
            load.new_users.discard(self)

    return ClosedLoopUser


def opened(load: ProcessLoad) -> type[locust.User]:
    """Return the user that sends on schedule, without waiting for responses."""
    requests, gaps = load.turns(), load.gaps()
    client = RecordingClient(load.url, load.log, timeout=load.timeout, connections=load.most_unanswered)

    def send(due: float) -> None:
        """Send the next request without waiting for it; record it as failed if too many are unanswered."""
        request = next(requests)
        if len(load.log.unanswered) < load.most_unanswered:
            gevent.spawn(client.send, request, due)
            return
        now = time.monotonic()
        error = f"not sent: {load.most_unanswered} requests had no answer"
        load.log.record(due, now, error, behind=now - due)

    def schedule(rate: float) -> None:
        """Send at this rate until it changes; requests whose time has passed follow at once, none skipped."""
        due = time.monotonic() + next(gaps) / rate
        while load.rate == rate:
            if due > time.monotonic():
                load.timer.wait_until(due)
                continue  # a change of the rate ends the wait as well
            send(due)
            due += next(gaps) / rate
            gevent.sleep(0)  # lets the request's greenlet run

    class OpenLoopUser(locust.User):  # type: ignore[misc]
        @locust.task  # type: ignore[untyped-decorator]
        def send_requests(self) -> None:
            while self._state == LOCUST_STATE_RUNNING:
                if load.rate > 0:
                    schedule(load.rate)
                else:
                    load.timer.wait_until(time.monotonic() + 1)

    return OpenLoopUser

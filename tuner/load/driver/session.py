"""The session of a locust process: takes a plan, sets levels on command, and sends all records."""

import gc
import json
import time
from collections.abc import Callable
from typing import Any

import gevent
import locust
from gevent import socket
from gevent.lock import Semaphore
from locust.env import Environment

from tuner.load import wire
from tuner.load.driver import user_locustfile, users

_FLUSH_SECONDS = 0.05
"""Time between two batches of records."""
_POLL_SECONDS = 0.005
"""Time between two checks of a condition that a command waits for."""


def serve(descriptor: int) -> None:
    """Drive load on the parent's commands until it closes the socket."""
    channel = socket.socket(fileno=descriptor)
    lines = channel.makefile("rb")
    plan = json.loads(lines.readline() or b"{}")
    if not plan:  # the parent ended before it sent one
        return
    try:
        session = Session(channel, plan)
    except user_locustfile.LocustfileError as error:
        channel.sendall(wire.frame(wire.REPLY, wire.line({"wrong": str(error)})))
        return
    session.reply(lambda: {"ready": True})
    for line in lines:
        session.obey(json.loads(line))
    session.end()


class Session:
    """The execution of one plan."""

    def __init__(self, channel: socket.socket, plan: dict[str, Any]) -> None:
        """Make locust's environment without users.

        Raises:
            user_locustfile.LocustfileError: the locustfile cannot be run.
        """
        self._channel = channel
        self._sending = Semaphore()
        self._load = users.ProcessLoad(
            url=plan["url"],
            mode=plan["mode"],
            requests=wire.read_requests(plan),
            seed=plan["seed"],
            number=plan["number"],
            processes=plan["processes"],
            timeout=plan["timeout"],
            most_unanswered=plan["most_unanswered"],
        )
        self._log = self._load.log
        source = plan["locustfile"]
        if source is not None:
            classes = user_locustfile.users(source)
            user_locustfile.record(self._log)
        else:
            classes = [users.closed(self._load) if self._load.mode == "closed" else users.opened(self._load)]
        self._environment = Environment(
            user_classes=classes, events=locust.events, host=plan["url"], stop_timeout=plan["timeout"]
        )
        self._runner = self._environment.create_local_runner()
        locust.events.init.fire(environment=self._environment, runner=self._runner, web_ui=None)
        gevent.spawn(self._flush)
        gc.collect()
        gc.freeze()  # a collection over all of locust would delay every request

    def obey(self, command: dict[str, Any]) -> None:
        """Carry out one command of `tuner.load.wire`, and reply."""
        if "level" in command:
            self._set_level(command["level"], command["patience"])
        self.reply(
            lambda: {
                "done": command["number"],
                "unanswered": list(self._log.unanswered.values()),
                "silent": list(self._log.silent.values()),
            }
        )

    def _set_level(self, level: float, patience: float) -> None:
        """Set this process's level: users, or requests per second.

        A lower rate begins after the last request of the higher one has ended, by its timeout at the latest.
        New users have `patience` seconds for their first responses.
        """
        if self._load.mode == "closed":
            self._set_users(int(level), patience)
            return
        if level < self._load.rate:
            self._set_rate(0.0)
            _wait_until(lambda: not self._log.unanswered, self._load.timeout)
        self._set_rate(level)
        self._set_users(1, patience)  # the one user that sends all requests

    def _set_rate(self, rate: float) -> None:
        self._load.rate = rate
        self._load.timer.wake()

    def _set_users(self, count: int, patience: float) -> None:
        before = self._runner.user_count
        if count == before:
            return
        all_at_once = max(1, count, before)  # users per second
        self._runner.start(count, all_at_once)
        # A user that stops ends its request first.
        longest = self._load.timeout if count < before else patience
        _wait_until(lambda: self._runner.user_count == count, longest)
        # Of hundreds of users that connect at once, some wait a second for their first response, and never
        # again that long.
        _wait_until(lambda: not self._load.new_users, patience)

    def reply(self, content: Callable[[], dict[str, Any]]) -> None:
        """Send the records so far with `content` of the same moment, so that no request is in both."""
        with self._sending:
            frame = wire.frame(wire.REPLY, wire.line(content()))
            self._channel.sendall(self._log.take() + frame)

    def _flush(self) -> None:
        while True:
            gevent.sleep(_FLUSH_SECONDS)
            with self._sending:
                frames = self._log.take()
                if frames:
                    self._channel.sendall(frames)

    def end(self) -> None:
        """Stop the users as at the end of a locust test."""
        self._environment.stop_timeout = 0
        self._runner.quit()


def _wait_until(condition: Callable[[], bool], seconds: float) -> None:
    """Wait until a condition holds, for at most some seconds."""
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        gevent.sleep(_POLL_SECONDS)

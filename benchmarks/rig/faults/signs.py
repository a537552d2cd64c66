"""Signs of a fault that an operator sees, with their times: conditions, Pods, Events, warnings in logs."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import NamedTuple

from serving import clock, errors
from serving.kube import Kube
from serving.objects import Object
from serving.resources import kinds
from serving.resources.kubernetes import conditions

POLL_SECONDS = 0.1
ANSWER_SECONDS = 1.0
"""Longest wait for the API: the logs are read meanwhile, but not longer in vain."""
LEVELS = (" WARNING ", " ERROR ", " CRITICAL ")


class FaultSign(NamedTuple):
    """One thing that an operator sees."""

    at: float
    """When it was seen, in seconds of the machine's monotonic clock."""
    place: str
    words: str


class Log:
    """A log file from its end on."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = path.stat().st_size if path.exists() else 0

    def warnings(self) -> Iterator[str]:
        """Yield the messages of new lines from WARNING on."""
        if self._path.stat().st_size < self._offset:
            self._offset = 0  # rotated
        with self._path.open("rb") as file:
            file.seek(self._offset)
            content = file.read()
        complete = content[: content.rfind(b"\n") + 1]
        self._offset += len(complete)
        for line in complete.decode(errors="replace").splitlines():
            if any(level in line for level in LEVELS):
                # time, level, component, logger, message
                yield line.split(" ", 4)[-1]


class Signs:
    """The signs since `run` began."""

    def __init__(self, kube: Kube, logs: Path) -> None:
        self._kube = kube
        self._logs = {path.stem: Log(path) for path in sorted(logs.glob("*.log")) if path.stem != "envoy"}
        self._known: dict[str, str] = {}
        """State by object."""
        self.seen: list[FaultSign] = []

    def since(self, moment: float) -> list[FaultSign]:
        return [sign for sign in self.seen if sign.at >= moment]

    async def run(self) -> None:
        """Look until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._read_logs())
            group.create_task(self._ask())

    async def _read_logs(self) -> None:
        while True:
            for name, log in self._logs.items():
                self.seen += [FaultSign(clock.monotonic(), f"{name}.log", words) for words in log.warnings()]
            await asyncio.sleep(POLL_SECONDS)

    async def _ask(self) -> None:
        first = True
        while True:
            with contextlib.suppress(errors.ApiError, errors.Unavailable, TimeoutError):
                async with asyncio.timeout(ANSWER_SECONDS):
                    states = [state async for state in self._states()]
                for key, place, words in states:
                    if self._known.get(key) != words:
                        self._known[key] = words
                        if not first:
                            self.seen.append(FaultSign(clock.monotonic(), place, words))
                first = False
            await asyncio.sleep(POLL_SECONDS)

    async def _states(self) -> AsyncIterator[tuple[str, str, str]]:
        """Yield key, place and words of each state that the API has now."""
        for inference in (await self._kube.list(kinds.INFERENCE, "default")).items:
            name = inference["metadata"]["name"]
            for condition in (inference.get("status") or {}).get("conditions") or []:
                state = " ".join(str(condition.get(field, "")) for field in ("type", "status", "reason"))
                yield f"{name}/{condition['type']}", f"Inference {name}", state
        for pod in (await self._kube.list(kinds.POD, "default")).items:
            yield pod["metadata"]["uid"], f"Pod {pod['metadata']['name']}", _state_of_pod(pod)
        for event in (await self._kube.list(kinds.EVENT_V1, "default")).items:
            words = f"{event.get('reason')}: {event.get('message')}"
            place = f"Event of {event['involvedObject'].get('kind')}"
            yield f"{event['metadata']['uid']}/{event.get('count')}", place, words


def _state_of_pod(pod: Object) -> str:
    statuses = (pod.get("status") or {}).get("containerStatuses") or []
    ready = "Ready" if conditions.is_true(pod, "Ready") else "not Ready"
    return f"{ready}, {sum(status.get('restartCount', 0) for status in statuses)} restarts"

"""The load generator: locust processes, one on each core, that hold a level and record its requests.

Locust is never imported here, as it patches the process that imports it. Each process has a share of the
users or the rate. Their unrounded records are merged here; locust's master would round them to two digits.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from typing import Self

import numpy as np

from serving import clock
from serving.errors import Temporary
from serving.system.isolation.user_ids import UserIds
from tuner.load import cgroups, wire
from tuner.load.locust_process import LOAD_FAILED, LocustProcess, OpenRequests, WindowMemory
from tuner.load.plan import LoadPlan
from tuner.load.windows.samples import Samples
from tuner.settings import LoadSettings

_LATE_SECONDS = 0.01
"""Delay after which a request counts as sent late: ten times the usual delay of the event loop."""


class Generator:
    """A running load generator; see `start`."""

    def __init__(self, locusts: Sequence[LocustProcess], plan: LoadPlan, settings: LoadSettings) -> None:
        """Take over processes that are ready."""
        self._locusts = locusts
        self._plan = plan
        self._settings = settings
        self._level = 0.0

    @classmethod
    @contextlib.asynccontextmanager
    async def start(
        cls,
        url: str,
        plan: LoadPlan,
        settings: LoadSettings,
        cores: Sequence[int] = (),
        *,
        user_ids: UserIds | None,
    ) -> AsyncIterator[Self]:
        """Start locust without load; every process has ended when the block is left.

        Args:
            url: scheme, host and port of the target; the requests have the paths.
            plan: the requests.
            settings: timeouts.
            cores: each gets a pinned process; without cores, one process runs anywhere.
            user_ids: lease the processes a user, and limit them, as they run anybody's code; None where this
                process is not root.

        Raises:
            Permanent: `LoadFailed`, the locustfile cannot be run.
            Temporary: `LoadFailed`, locust did not start, or died.
        """
        pins: list[int | None] = list(cores) or [None]
        memory = WindowMemory(settings.window_bytes)
        async with contextlib.AsyncExitStack() as stack:
            locusts = []
            try:
                user = None if user_ids is None else user_ids.new()
                groups = [] if user is None else cgroups.make(user, settings)
                stack.push_async_callback(asyncio.to_thread, cgroups.remove, groups)
                for number, core in enumerate(pins):
                    locust = await LocustProcess.begin(
                        plan,
                        url,
                        settings,
                        core=core,
                        user=user,
                        groups=groups,
                        number=number,
                        processes=len(pins),
                        memory=memory,
                    )
                    stack.push_async_callback(locust.end)
                    locusts.append(locust)
            except OSError as error:
                raise Temporary(LOAD_FAILED, f"locust cannot be started: {error}") from error
            await asyncio.gather(*(locust.ready() for locust in locusts))
            yield cls(locusts, plan, settings)

    async def window(self, level: float, seconds: float) -> Samples:
        """Hold a level for some seconds and return its samples; the load goes on until the next call.

        Args:
            level: users, a whole number; in an open loop, requests per second.
            seconds: of the window, from when the level was reached. Reaching it takes at most
                `request_timeout` and twice `drain_timeout`, the replies after it at most `reply_timeout`.

        Raises:
            Permanent: `LoadFailed`, the window has more records than `tuner.load.window_bytes`.
            Temporary: `LoadFailed`, a locust process died, does not answer, or breaks the protocol.
        """
        if level != self._level:
            await self._reach(level)
        for locust in self._locusts:
            locust.keep_records()
        begin, used = clock.monotonic(), self._busy_seconds()
        await self._wait(seconds)
        used = self._busy_seconds() - used
        still_open = await asyncio.gather(*(locust.command() for locust in self._locusts))
        samples = self._samples(level, begin, seconds, still_open, used / (seconds * len(self._locusts)))
        for locust in self._locusts:
            locust.drop_records()
        return samples

    async def _reach(self, level: float) -> None:
        """Set the level of each process, and wait for all of them."""
        shares = self._shares(level)
        patience = self._settings.drain_timeout
        # A process waits for the last level's requests (`request_timeout`), for its new users to start
        # (`patience`), and for their first responses (`patience`).
        longest = self._settings.request_timeout + 2 * patience
        await asyncio.gather(
            *(
                locust.command(longest=longest, level=share, patience=patience)
                for locust, share in zip(self._locusts, shares, strict=True)
            )
        )
        self._level = level

    def _shares(self, level: float) -> list[float]:
        """Return each process's share: equal rates, or users that differ by one at most."""
        count = len(self._locusts)
        if self._plan.mode == "open":
            return [level / count] * count
        users, remainder = divmod(round(level), count)
        return [float(users + 1 if number < remainder else users) for number in range(count)]

    async def _wait(self, seconds: float) -> None:
        """Wait for some seconds.

        Raises:
            Permanent: the window has more records than are kept.
            Temporary: a process ended.
        """
        waiting = {asyncio.create_task(locust.ended.wait()): locust for locust in self._locusts}
        try:
            done, _ = await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waiting:
                task.cancel()
        for task in done:
            raise await waiting[task].failure()

    def _busy_seconds(self) -> float:
        return sum(locust.busy_seconds() for locust in self._locusts)

    def _samples(
        self, level: float, begin: float, seconds: float, still_open: Sequence[OpenRequests], cpu: float
    ) -> Samples:
        """Merge the requests of all processes.

        Those that ended within the window are its samples; those that ended later were unanswered at its end.

        Args:
            level: users, or requests per second.
            begin: the window's start, in seconds on the monotonic clock.
            seconds: length of the window.
            still_open: of each process, the requests that were open shortly after the window's end.
            cpu: share of its cores that the generator used or waited for, 0 to 1.
        """
        end = begin + seconds
        parts, errors = [], Counter[str]()
        for locust, open_requests in zip(self._locusts, still_open, strict=True):
            recorded = bytes(locust.records[: open_requests.recorded])
            rows = np.frombuffer(recorded, dtype=np.dtype(list(wire.FIELDS)))
            parts.append(rows)
            numbers, counts = np.unique(rows["error"][_within(rows["done"], begin, end)], return_counts=True)
            errors.update({locust.errors[n]: int(c) for n, c in zip(numbers, counts, strict=True) if n})
        rows = np.concatenate(parts)
        later = rows[rows["done"] >= end]
        rows = np.sort(rows[_within(rows["done"], begin, end)], order="done")
        # Some requests ended, or had their first token, between the window's end and the processes' replies.
        # `silent` are the starts of those without a first token at the end.
        spoke_later = later[later["intended"] + later["ttft"] >= end]
        unanswered = _moments([*(each.unanswered for each in still_open), later["intended"]])
        silent = _moments([*(each.silent for each in still_open), spoke_later["intended"]])
        # Of each streamed response, the times between its tokens, packed as float64.
        streams = sorted(
            stream for locust in self._locusts for stream in locust.gaps if begin <= stream.done < end
        )
        itl = np.frombuffer(b"".join(stream.content for stream in streams), dtype=np.float64)
        itl_done = np.repeat(
            [stream.done - begin for stream in streams],
            [len(stream.content) // itl.itemsize for stream in streams],
        )
        return Samples(
            mode=self._plan.mode,
            level=level,
            seconds=seconds,
            intended=rows["intended"] - begin,
            latency=rows["done"] - rows["intended"],
            ok=rows["error"] == 0,
            tokens=rows["tokens"].astype(np.int64),
            prompt_tokens=rows["prompt_tokens"].astype(np.int64),
            ttft=rows["ttft"],
            itl=itl,
            itl_done=itl_done,
            unfinished=end - unanswered[unanswered < end],
            silent=end - silent[silent < end],
            longest=self._settings.request_timeout,
            generator_cpu=cpu,
            late=float(np.mean(rows["behind"] > _LATE_SECONDS)) if len(rows) else 0.0,
            errors=tuple(errors.most_common()),
        )


def _moments(parts: Sequence[Sequence[float] | np.ndarray]) -> np.ndarray:
    """Return all moments in ascending order."""
    return np.sort(np.concatenate([np.asarray(part, dtype=np.float64) for part in parts]))


def _within(moments: np.ndarray, begin: float, end: float) -> np.ndarray:
    return (moments >= begin) & (moments < end)

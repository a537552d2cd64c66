"""`/pods/NAME/log`: reads the append-only log files of containers.

The file `N.log` is the container's n-th run. When it grows too large the agent renames it to `N.log.1` and
starts a new one, so a reader that follows reads its open file to the end, then opens the next.
"""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO

from serving import errors
from serving.data_dir import DataDir
from serving.embedded.apiserver.pods import log_times
from serving.embedded.apiserver.requests import queries
from serving.embedded.pod_spec.container_id import run_index
from serving.objects import Object
from serving.system import regular_file

_CHUNK_BYTES = 64 * 1024
_POLL_SECONDS = 0.1
"""Between reads of a followed file."""

LogChunk = tuple[BinaryIO, int, bytes]
"""The open file, the offset of the chunk in it, and the chunk."""


class LogOptions:
    """The query of a log: the container and the part of its log."""

    def __init__(self, query: Mapping[str, str], now: datetime) -> None:
        """Read the query, as of `now`.

        Raises:
            errors.ApiError: 400, a parameter is malformed or not supported.
        """
        self.container = query.get("container", "")
        self.follow = queries.flag(query, "follow")
        self.previous = queries.flag(query, "previous")
        self.tail = queries.number(query, "tailLines")
        self.limit = queries.number(query, "limitBytes")
        if self.limit == 0:
            raise queries.bad("limitBytes", "0", "must be greater than 0")
        self.timestamps = queries.flag(query, "timestamps")
        self.since = _since(query, now)
        """Nanoseconds since 1970, or None."""


def _since(query: Mapping[str, str], now: datetime) -> int | None:
    since_seconds, since_time = queries.number(query, "sinceSeconds"), query.get("sinceTime", "")
    if since_seconds is not None and since_time:
        raise queries.bad(
            "sinceTime", since_time, "at most one of `sinceTime` or `sinceSeconds` may be specified"
        )
    if since_seconds == 0:
        raise queries.bad("sinceSeconds", "0", "must be greater than 0")
    if since_seconds is not None:
        return (int(now.timestamp()) - since_seconds) * log_times.SECOND
    if not since_time:
        return None
    try:
        time = datetime.fromisoformat(since_time)
    except ValueError as error:
        raise queries.bad("sinceTime", since_time, "must be an RFC 3339 date and time") from error
    if time.tzinfo is None:
        raise queries.bad("sinceTime", since_time, "must be an RFC 3339 date and time with an offset")
    return int(time.timestamp() * 1000) * (log_times.SECOND // 1000)


def container_name(pod: Object, options: LogOptions) -> str:
    """Return the name of the container whose log to read.

    Raises:
        errors.ApiError: 400, the query has no container name where there are several, or an unknown one.
    """
    spec = pod.get("spec") or {}
    names = [c["name"] for c in spec.get("containers") or []]
    init = [c["name"] for c in spec.get("initContainers") or []]
    pod_name = pod["metadata"]["name"]
    if not options.container:
        if len(names) == 1:
            return str(names[0])
        message = f"a container name must be specified for pod {pod_name}, choose one of: [{' '.join(names)}]"
        raise errors.ApiError(400, "BadRequest", message)
    if options.container not in names + init:
        message = f"container {options.container} is not valid for pod {pod_name}"
        raise errors.ApiError(400, "BadRequest", message)
    return options.container


def _status(pod: Object, name: str) -> Mapping[str, Any]:
    status = pod.get("status") or {}
    statuses = [*(status.get("containerStatuses") or []), *(status.get("initContainerStatuses") or [])]
    return next((entry for entry in statuses if entry.get("name") == name), {})


def locate(data_dir: DataDir, pod: Object, name: str, *, previous: bool) -> Path:
    """Return the path of the log of the container's current or previous run.

    Raises:
        errors.ApiError: 400, there is no log (yet).
    """
    last = run_index(_status(pod, name).get("containerID") or "") or 0
    # The agent may be ahead of the status: it may have begun another run, and keeps the logs of the last two.
    runs = ([last - 1, last] if last else []) if previous else [last, last - 1]
    for run in runs:
        path = data_dir.pod_log(pod["metadata"]["uid"], name, run)
        if path.exists() or _rotated(path).exists():
            return path
    pod_name = pod["metadata"]["name"]
    if previous:
        message = f'previous terminated container "{name}" in pod "{pod_name}" not found'
        raise errors.ApiError(400, "BadRequest", message)
    waiting = (_status(pod, name).get("state") or {}).get("waiting") or {}
    reason = waiting.get("reason") or "ContainerCreating"
    message = f'container "{name}" in pod "{pod_name}" is waiting to start: {reason}'
    raise errors.ApiError(400, "BadRequest", message)


def open_log(data_dir: DataDir, pod: Object, name: str, options: LogOptions) -> tuple[Path, BinaryIO]:
    """Return the log's path and the open log, which remains readable when the file is removed.

    Raises:
        errors.ApiError: 400, there is no log (yet), it is no regular file, or it lacks the times that the
            options need.
    """
    while True:
        path = locate(data_dir, pod, name, previous=options.previous)
        for present in (path, _rotated(path)):
            try:
                file = regular_file.open_binary(present)
            except FileNotFoundError:  # renamed or removed since it was located
                continue
            except OSError as error:
                message = f'the log of container "{name}" cannot be read: {present.name}: {error.strerror}'
                raise errors.ApiError(400, "BadRequest", message) from error
            try:
                _check_times(path, file, options)
            except errors.ApiError:
                file.close()
                raise
            return path, file


def _rotated(path: Path) -> Path:
    return path.with_name(path.name + ".1")


def has_ended(pod: Object | None, name: str) -> bool:
    """Whether the container's run has ended, so that no more is written to its log."""
    if pod is None:
        return True
    state = _status(pod, name).get("state") or {}
    return "terminated" in state or (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def _check_times(path: Path, file: BinaryIO, options: LogOptions) -> None:
    """Check that the log has times if the options need them.

    Raises:
        errors.ApiError: 400, the log has no times.
    """
    if options.since is None and not options.timestamps:
        return
    times = log_times.find(path, file)
    if times is None:
        name = "timestamps" if options.timestamps else "sinceSeconds, sinceTime"
        raise queries.bad(name, "true", f"the lines of {path.name} were written without their times")
    times.close()


async def read(
    path: Path, file: BinaryIO, options: LogOptions, is_over: Callable[[], bool]
) -> AsyncIterator[bytes]:
    """Yield the log in chunks, and close it; with `follow` until `is_over()` and the end of the file."""
    remaining = options.limit
    async for chunk in _timed(path, file, options, is_over):
        if remaining is None:
            yield chunk
            continue
        yield chunk[:remaining]
        remaining -= len(chunk)
        if remaining <= 0:
            return


async def _timed(
    path: Path, log: BinaryIO, options: LogOptions, is_over: Callable[[], bool]
) -> AsyncIterator[bytes]:
    if options.since is None and not options.timestamps:
        async for _, _, chunk in _chunks(path, log, options, is_over):
            yield chunk
        return
    line_filter = log_times.LineFilter(options.since, show=options.timestamps)
    current: BinaryIO | None = None
    times: log_times.LogTimes | None = None
    try:
        async for file, offset, chunk in _chunks(path, log, options, is_over):
            if file is not current:
                if times is not None:
                    times.close()
                current, times = file, log_times.find(path, file)
            if times is not None:
                times.refresh()
            if shown := line_filter.apply(offset, chunk, times.at if times is not None else _unknown):
                yield shown
    finally:
        if times is not None:
            times.close()


def _unknown(_: int) -> None:
    return None


async def _chunks(
    path: Path, file: BinaryIO, options: LogOptions, is_over: Callable[[], bool]
) -> AsyncIterator[LogChunk]:
    try:
        for chunk in _beginning(file, _rotated(path), options.tail):
            yield chunk
        while True:
            over = is_over()  # before reading, so that output from before the end is read after it
            for chunk in _rest(file):
                yield chunk
            if not options.follow:
                return
            if (newer := _reopened(path, file)) is not None:
                for chunk in _rest(file):
                    yield chunk
                file.close()
                file = newer
            elif over:
                return
            else:
                await asyncio.sleep(_POLL_SECONDS)
    finally:
        file.close()


def _rest(file: BinaryIO) -> Iterator[LogChunk]:
    while True:
        offset = file.tell()
        chunk = file.read(_CHUNK_BYTES)
        if not chunk:
            return
        yield file, offset, chunk


def _beginning(file: BinaryIO, older: Path, tail: int | None) -> Iterator[LogChunk]:
    """Yield the part in the rotated file, and seek the open file to the start of its part."""
    offset, missing = (0, None) if tail is None else _last_lines(file, tail)
    if missing is None or missing > 0:
        with contextlib.suppress(OSError), regular_file.open_binary(older) as before:
            if not _same(older, file):
                before.seek(0 if missing is None else _last_lines(before, missing)[0])
                yield from _rest(before)
    file.seek(offset)


def _same(path: Path, file: BinaryIO) -> bool:
    try:
        return os.path.samestat(path.lstat(), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False


def _reopened(path: Path, file: BinaryIO) -> BinaryIO | None:
    """Return the new file at the path; None while it is the open one, or no regular file."""
    try:
        return None if _same(path, file) else regular_file.open_binary(path)
    except OSError:
        return None


def _last_lines(file: BinaryIO, lines: int) -> tuple[int, int]:
    """Return the offset of the last `lines` lines, and how many lines the file lacks."""
    end = file.seek(0, os.SEEK_END)
    if lines == 0:
        return end, 0
    position, count = end, 0
    while position > 0:
        start = max(0, position - _CHUNK_BYTES)
        file.seek(start)
        chunk = file.read(position - start)
        newline = len(chunk)
        while (newline := chunk.rfind(b"\n", 0, newline)) >= 0:
            if start + newline == end - 1:
                continue  # the newline that ends the last line
            count += 1
            if count == lines:
                return start + newline + 1, 0
        position = start
    return 0, lines - count - (1 if end else 0)

"""`/pods/NAME/log`: reads the append-only log files of containers.

The file `N.log` is the container's run N, counted from 0. When it grows too large the container shim renames
it to `N.log.1` and starts a new one, so a reader that follows reads its open file to the end, then opens the
next.
"""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from serving import errors
from serving.data_dir import DataDir
from serving.embedded.apiserver.pods import log_times
from serving.embedded.apiserver.requests import queries
from serving.embedded.pod_spec.container_id import run_index
from serving.objects import Object
from serving.resources.kubernetes import container_statuses, pod_phases
from serving.system.files import regular_file

_CHUNK_BYTES = 64 * 1024
"""Most bytes of one read."""
_POLL_SECONDS = 0.1
"""Between reads of a followed file."""


class LogChunk(NamedTuple):
    """Consecutive bytes of a log."""

    file: BinaryIO
    """The open file that they are from."""
    offset: int
    """Of the first byte in the file."""
    data: bytes


class _Tail(NamedTuple):
    """The last lines of a file."""

    offset: int
    """Of the first of the lines."""
    missing: int
    """How many of the requested lines the file lacks."""


class LogOptions:
    """The query of a log (metav1's PodLogOptions): the container and the part of its log."""

    def __init__(self, query: Mapping[str, str], now: datetime) -> None:
        """Read the query, as of `now`.

        Raises:
            errors.ApiError: 400, a parameter is malformed or not supported.
        """
        self.container = query.get("container", "")
        self.follow = queries.flag(query, "follow")
        self.previous = queries.flag(query, "previous")
        self.tail_lines = queries.number(query, "tailLines")
        self.limit_bytes = queries.number(query, "limitBytes")
        if self.limit_bytes == 0:
            raise queries.bad("limitBytes", "0", "must be greater than 0")
        self.timestamps = queries.flag(query, "timestamps")
        self.since = _since(query, now)
        """Nanoseconds since 1970, or None."""


def _since(query: Mapping[str, str], now: datetime) -> int | None:
    """Return `sinceSeconds` or `sinceTime` in nanoseconds since 1970, or None without either."""
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
    # Rounded down to a millisecond: seconds since 1970 as a float are not exact to a nanosecond.
    milliseconds = int(time.timestamp() * 1000)
    return milliseconds * (log_times.SECOND // 1000)


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
    """Return the status of a container or init container; empty if the Pod has none of it yet."""
    statuses = container_statuses.of(pod.get("status") or {})
    return next((entry for entry in statuses if entry.get("name") == name), {})


def locate(data_dir: DataDir, pod: Object, name: str, *, previous: bool) -> Path:
    """Return the path `N.log` of the log of the container's current or previous run.

    The node agent keeps the logs of the last two runs. It may have begun a run that the status does not name
    yet, and removed the log of the run before the status's. The current run may have no log yet.

    Raises:
        errors.ApiError: 400, there is no log (yet).
    """
    status_run = run_index(_status(pod, name).get("containerID") or "") or 0
    if not previous:
        candidates = [status_run, status_run - 1]
    elif status_run:
        candidates = [status_run - 1, status_run]
    else:
        candidates = []
    for run in candidates:
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
    """Return the path `N.log`, and the open file, which remains readable when it is renamed or removed.

    Raises:
        errors.ApiError: 400, there is no log (yet), it is no regular file, or it lacks the times that the
            options need.
    """
    while True:
        path = locate(data_dir, pod, name, previous=options.previous)
        for file_path in (path, _rotated(path)):
            try:
                file = regular_file.open_binary(file_path)
            except FileNotFoundError:  # renamed or removed since it was located
                continue
            except OSError as error:
                message = f'the log of container "{name}" cannot be read: {file_path.name}: {error.strerror}'
                raise errors.ApiError(400, "BadRequest", message) from error
            try:
                _check_times(path, file, options)
            except errors.ApiError:
                file.close()
                raise
            return path, file


def _rotated(path: Path) -> Path:
    """Return the path to which the container shim renames a log that has grown too large."""
    return path.with_name(path.name + ".1")


def has_ended(pod: Object, name: str) -> bool:
    """Whether the container's run has ended, so that no more is written to its log."""
    status = _status(pod, name)
    if "terminated" in (status.get("state") or {}):
        return True
    # While the container waits for its restart, the last state is that of its latest run.
    last = (status.get("lastState") or {}).get("terminated") or {}
    waits = bool(last) and last.get("containerID") == status.get("containerID")
    return waits or pod_phases.has_ended(pod)


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
    """Yield the part of the log that the options ask for, in chunks, and close the file.

    Args:
        path: the path `N.log`.
        file: the open log, as of `open_log`.
        options: the part of the log, and whether to follow it.
        is_over: whether no more is written to the log; with `follow` its end then ends the response.
    """
    remaining = options.limit_bytes
    async for chunk in _lines(path, file, options, is_over):
        if remaining is None:
            yield chunk
            continue
        yield chunk[:remaining]
        remaining -= len(chunk)
        if remaining <= 0:
            return


async def _lines(
    path: Path, log: BinaryIO, options: LogOptions, is_over: Callable[[], bool]
) -> AsyncIterator[bytes]:
    """Yield the chunks, without lines before `since`, and with the lines' times if they are asked for."""
    if options.since is None and not options.timestamps:
        async for chunk in _chunks(path, log, options, is_over):
            yield chunk.data
        return
    line_filter = log_times.LineFilter(options.since, show=options.timestamps)
    current: BinaryIO | None = None
    times: log_times.LogTimes | None = None
    try:
        async for file, offset, data in _chunks(path, log, options, is_over):
            if file is not current:
                if times is not None:
                    times.close()
                current, times = file, log_times.find(path, file)
            if times is not None:
                times.refresh()
            if shown := line_filter.apply(offset, data, times.at if times is not None else _unknown_time):
                yield shown
    finally:
        if times is not None:
            times.close()


def _unknown_time(_offset: int) -> None:
    return None


async def _chunks(
    path: Path, file: BinaryIO, options: LogOptions, is_over: Callable[[], bool]
) -> AsyncIterator[LogChunk]:
    """Yield the chunks of the rotated file, of the open file, and with `follow` of the files after it."""
    try:
        for chunk in _rotated_part(file, _rotated(path), options.tail_lines):
            yield chunk
        while True:
            over = is_over()  # asked before the read, which thus has all that was written before the end
            for chunk in _rest(file):
                yield chunk
            if not options.follow:
                return
            if (newer := _reopened(path, file)) is not None:
                for chunk in _rest(file):  # written between the read above and the rename
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
    """Yield the file from its position to its end."""
    while True:
        offset = file.tell()
        data = file.read(_CHUNK_BYTES)
        if not data:
            return
        yield LogChunk(file, offset, data)


def _rotated_part(file: BinaryIO, rotated: Path, tail_lines: int | None) -> Iterator[LogChunk]:
    """Yield the part in the rotated file, and seek the open file to the start of its part.

    Without `tail_lines` both parts are the whole files. The open file may be the rotated one itself.
    """
    tail = None if tail_lines is None else _last_lines(file, tail_lines)
    if tail is None or tail.missing > 0:
        with contextlib.suppress(OSError), regular_file.open_binary(rotated) as older:
            if not _is_file_at(rotated, file):
                older.seek(0 if tail is None else _last_lines(older, tail.missing).offset)
                yield from _rest(older)
    file.seek(0 if tail is None else tail.offset)


def _is_file_at(path: Path, file: BinaryIO) -> bool:
    """Whether the open file is the one at the path."""
    try:
        return os.path.samestat(path.lstat(), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False


def _reopened(path: Path, file: BinaryIO) -> BinaryIO | None:
    """Return the new file at the path; None while it is the open one, or no regular file."""
    try:
        return None if _is_file_at(path, file) else regular_file.open_binary(path)
    except OSError:
        return None


def _last_lines(file: BinaryIO, lines: int) -> _Tail:
    """Return where the last `lines` lines begin; the file is read backwards, in chunks."""
    end = file.seek(0, os.SEEK_END)
    if lines == 0:
        return _Tail(end, 0)
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
                return _Tail(start + newline + 1, 0)
        position = start
    lines_in_file = count + 1 if end else 0  # `count` newlines separate one line more
    return _Tail(0, lines - lines_in_file)

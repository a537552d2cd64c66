"""`/pods/NAME/log`: reads the append-only files that the node agent's containers write.

The file `N.log` is the container's n-th run; when it grows too large the agent renames it to `N.log.1` and
starts a new one, so a reader that follows keeps its open file until it is at the end of it, then opens the next.
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
from serving.objects import Object

_PIECE = 64 * 1024
_POLL_SECONDS = 0.1
"""Between looks at a file that is followed: what a person feels as at once."""


Piece = tuple[BinaryIO, int, bytes]
"""The open file, where in it the piece begins, and the piece."""


class Options:
    """What part of which container's log is asked for."""

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
    seconds, moment = queries.number(query, "sinceSeconds"), query.get("sinceTime", "")
    if seconds is not None and moment:
        raise queries.bad(
            "sinceTime", moment, "at most one of `sinceTime` or `sinceSeconds` may be specified"
        )
    if seconds == 0:
        raise queries.bad("sinceSeconds", "0", "must be greater than 0")
    if seconds is not None:
        return (int(now.timestamp()) - seconds) * log_times.SECOND
    if not moment:
        return None
    try:
        found = datetime.fromisoformat(moment)
    except ValueError as error:
        raise queries.bad("sinceTime", moment, "must be an RFC 3339 date and time") from error
    if found.tzinfo is None:
        raise queries.bad("sinceTime", moment, "must be an RFC 3339 date and time with an offset")
    return int(found.timestamp() * 1000) * (log_times.SECOND // 1000)


def container(pod: Object, options: Options) -> str:
    """Return the container meant.

    Raises:
        errors.ApiError: 400, there are several and none is named, or there is no such.
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
    found = [*(status.get("containerStatuses") or []), *(status.get("initContainerStatuses") or [])]
    return next((entry for entry in found if entry.get("name") == name), {})


def locate(data_dir: DataDir, pod: Object, name: str, *, previous: bool) -> Path:
    """Return the name of the log of the container's current or previous run.

    Raises:
        errors.ApiError: 400, there is none (yet).
    """
    restart = int(_status(pod, name).get("restartCount") or 0)
    # The agent may be ahead of the status: it has begun another run, and keeps the logs of that and of the one before.
    runs = ([restart - 1, restart] if restart else []) if previous else [restart, restart - 1]
    for run in runs:
        path = data_dir.pod_log(pod["metadata"]["uid"], name, run)
        if path.exists() or _rotated(path).exists():
            return path
    pod_name = pod["metadata"]["name"]
    if previous:
        message = f'previous terminated container "{name}" in pod "{pod_name}" not found'
        raise errors.ApiError(400, "BadRequest", message)
    why = ((_status(pod, name).get("state") or {}).get("waiting") or {}).get("reason") or "ContainerCreating"
    message = f'container "{name}" in pod "{pod_name}" is waiting to start: {why}'
    raise errors.ApiError(400, "BadRequest", message)


def opened(data_dir: DataDir, pod: Object, name: str, options: Options) -> tuple[Path, BinaryIO]:
    """Return the log's name and the log, open: what is answered from then on does not end because a file is removed.

    Raises:
        errors.ApiError: 400, there is none (yet), or what is asked of times cannot be answered.
    """
    while True:
        path = locate(data_dir, pod, name, previous=options.previous)
        for present in (path, _rotated(path)):
            with contextlib.suppress(FileNotFoundError):  # renamed or removed since it was located
                file = present.open("rb")
                try:
                    _check_times(path, file, options)
                except errors.ApiError:
                    file.close()
                    raise
                return path, file


def _rotated(path: Path) -> Path:
    return path.with_name(path.name + ".1")


def ended(pod: Object | None, name: str) -> bool:
    """Whether nothing more will be written for this container's run."""
    if pod is None:
        return True
    state = _status(pod, name).get("state") or {}
    return "terminated" in state or (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def _check_times(path: Path, file: BinaryIO, options: Options) -> None:
    """Make sure that what is asked of times can be answered.

    Raises:
        errors.ApiError: 400, this log was written without them.
    """
    if options.since is None and not options.timestamps:
        return
    times = log_times.find(path, file)
    if times is None:
        name = "timestamps" if options.timestamps else "sinceSeconds, sinceTime"
        raise queries.bad(name, "true", f"the lines of {path.name} were written without their times")
    times.close()


async def read(
    path: Path, file: BinaryIO, options: Options, is_over: Callable[[], bool]
) -> AsyncIterator[bytes]:
    """Yield the log in pieces, and close it; with follow until `is_over` says so and everything has been read."""
    left = options.limit
    async for piece in _timed(path, file, options, is_over):
        if left is None:
            yield piece
            continue
        yield piece[:left]
        left -= len(piece)
        if left <= 0:
            return


async def _timed(
    path: Path, opened: BinaryIO, options: Options, is_over: Callable[[], bool]
) -> AsyncIterator[bytes]:
    if options.since is None and not options.timestamps:
        async for _, _, piece in _pieces(path, opened, options, is_over):
            yield piece
        return
    wanted = log_times.Filter(options.since, show=options.timestamps)
    current: BinaryIO | None = None
    times: log_times.Times | None = None
    try:
        async for file, offset, piece in _pieces(path, opened, options, is_over):
            if file is not current:
                if times is not None:
                    times.close()
                current, times = file, log_times.find(path, file)
            if times is not None:
                times.refresh()
            if left := wanted.cut(offset, piece, times.at if times is not None else _unknown):
                yield left
    finally:
        if times is not None:
            times.close()


def _unknown(_: int) -> None:
    return None


async def _pieces(
    path: Path, file: BinaryIO, options: Options, is_over: Callable[[], bool]
) -> AsyncIterator[Piece]:
    try:
        for piece in _beginning(file, _rotated(path), options.tail):
            yield piece
        while True:
            over = is_over()  # asked before reading: what was written before the end is read after it
            for piece in _rest(file):
                yield piece
            if not options.follow:
                return
            if (newer := _reopened(path, file)) is not None:
                for piece in _rest(file):
                    yield piece
                file.close()
                file = newer
            elif over:
                return
            else:
                await asyncio.sleep(_POLL_SECONDS)
    finally:
        file.close()


def _rest(file: BinaryIO) -> Iterator[Piece]:
    while True:
        offset = file.tell()
        piece = file.read(_PIECE)
        if not piece:
            return
        yield file, offset, piece


def _beginning(file: BinaryIO, older: Path, tail: int | None) -> Iterator[Piece]:
    """Yield what comes from the rotated file, and leave the open one where the rest begins."""
    offset, missing = (0, None) if tail is None else _last_lines(file, tail)
    if missing is None or missing > 0:
        with contextlib.suppress(FileNotFoundError), older.open("rb") as before:
            if not _same(older, file):
                before.seek(0 if missing is None else _last_lines(before, missing)[0])
                yield from _rest(before)
    file.seek(offset)


def _same(path: Path, file: BinaryIO) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False


def _reopened(path: Path, file: BinaryIO) -> BinaryIO | None:
    """Return the new file where the one that is open has been rotated away."""
    try:
        return None if _same(path, file) else path.open("rb")
    except FileNotFoundError:
        return None


def _last_lines(file: BinaryIO, lines: int) -> tuple[int, int]:
    """Return the offset of the last `lines` lines, and how many are missing because the file has fewer."""
    end = file.seek(0, os.SEEK_END)
    if lines == 0:
        return end, 0
    position, seen = end, 0
    while position > 0:
        start = max(0, position - _PIECE)
        file.seek(start)
        piece = file.read(position - start)
        at = len(piece)
        while (at := piece.rfind(b"\n", 0, at)) >= 0:
            if start + at == end - 1:
                continue  # the newline that ends the last line
            seen += 1
            if seen == lines:
                return start + at + 1, 0
        position = start
    return 0, lines - seen - (1 if end else 0)

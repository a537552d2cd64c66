"""`/pods/NAME/log`: reads the append-only files that the node agent's containers write.

The file `N.log` is the container's n-th run; when it grows too large the agent renames it to `N.log.1` and
starts a new one, so a reader that follows keeps its open file until it is at the end of it, then opens the next.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from serving import errors
from serving.embedded.api import queries
from serving.embedded.api.history import Object
from serving.settings import DataDir

_PIECE = 64 * 1024
_POLL_SECONDS = 0.1
"""Between looks at a file that is followed: what a person feels as at once."""
_UNSUPPORTED = ("sinceSeconds", "sinceTime", "timestamps")


class Options:
    """What part of which container's log is asked for."""

    def __init__(self, query: Mapping[str, str]) -> None:
        """Read the query.

        Raises:
            errors.ApiError: 400, a parameter is malformed or not supported.
        """
        for name in _UNSUPPORTED:
            if query.get(name, "") not in ("", "false", "0"):
                raise queries.bad(name, query[name], "not supported here: log lines are kept without a time")
        self.container = query.get("container", "")
        self.follow = queries.flag(query, "follow")
        self.previous = queries.flag(query, "previous")
        self.tail = queries.number(query, "tailLines")
        self.limit = queries.number(query, "limitBytes")
        if self.limit == 0:
            raise queries.bad("limitBytes", "0", "must be greater than 0")


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
    """Return the file of the container's current or previous run.

    Raises:
        errors.ApiError: 400, there is none (yet).
    """
    restart = int(_status(pod, name).get("restartCount") or 0) - (1 if previous else 0)
    pod_name = pod["metadata"]["name"]
    if restart < 0:
        message = f'previous terminated container "{name}" in pod "{pod_name}" not found'
        raise errors.ApiError(400, "BadRequest", message)
    path = data_dir.pod_log(pod["metadata"]["uid"], name, restart)
    if not path.exists() and not previous and restart > 0:
        earlier = data_dir.pod_log(pod["metadata"]["uid"], name, restart - 1)
        path = earlier if earlier.exists() else path  # the agent is about to start the next run
    if not path.exists():
        state = (_status(pod, name).get("state") or {}).get("waiting") or {}
        why = state.get("reason") or "ContainerCreating"
        message = f'container "{name}" in pod "{pod_name}" is waiting to start: {why}'
        raise errors.ApiError(400, "BadRequest", message)
    return path


def ended(pod: Object | None, name: str) -> bool:
    """Whether nothing more will be written for this container's run."""
    if pod is None:
        return True
    state = _status(pod, name).get("state") or {}
    return "terminated" in state or (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


async def read(path: Path, options: Options, is_over: Callable[[], bool]) -> AsyncIterator[bytes]:
    """Yield the log in pieces; with follow until `is_over` says so and everything has been read."""
    left = options.limit
    async for piece in _pieces(path, options, is_over):
        if left is None:
            yield piece
            continue
        yield piece[:left]
        left -= len(piece)
        if left <= 0:
            return


async def _pieces(path: Path, options: Options, is_over: Callable[[], bool]) -> AsyncIterator[bytes]:
    file: BinaryIO = path.open("rb")
    try:
        for piece in _beginning(file, path.with_name(path.name + ".1"), options.tail):
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


def _rest(file: BinaryIO) -> Iterator[bytes]:
    while piece := file.read(_PIECE):
        yield piece


def _beginning(file: BinaryIO, older: Path, tail: int | None) -> Iterator[bytes]:
    """Yield what comes from the rotated file, and leave the open one where the rest begins."""
    if tail is not None:
        head, offset = _tail(file, older, tail)
        yield head
        file.seek(offset)
    elif older.exists() and not _same(older, file):
        with older.open("rb") as before:
            yield from _rest(before)


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


def _tail(file: BinaryIO, older: Path, lines: int) -> tuple[bytes, int]:
    """Return the part of the rotated file that belongs to the last lines, and where to start in this one."""
    offset, missing = _last_lines(file, lines)
    if missing <= 0 or not older.exists() or _same(older, file):
        return b"", offset
    with older.open("rb") as before:
        start, _ = _last_lines(before, missing)
        before.seek(start)
        return before.read(), offset


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

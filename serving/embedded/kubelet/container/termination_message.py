"""Reads the termination message of a run: a file that its program wrote, or the end of its log.

The bytes are those of a foreign program. The message is bounded and has no control characters, and reading it
follows no link, blocks on no FIFO and fails for no file of another type.
"""

import contextlib
import os
import re
import unicodedata
from dataclasses import replace
from pathlib import Path

from serving.embedded.kubelet.pod.lifecycle import ContainerExit, ContainerRun
from serving.embedded.kubelet.records import RunDirectory
from serving.embedded.pod_spec import termination_fields
from serving.objects import Object
from serving.system.files import regular_file

FILE_BYTES = 4096
"""The kubelet's bound of a message from a file."""
LOG_BYTES = 2048
LOG_LINES = 80
"""The kubelet's bounds of a message from a log."""
FAILURES = ("Error", "OOMKilled")
"""Reasons of exits for which `FallbackToLogsOnError` reads the log: the program failed, or went over its
memory limit. Other failures (`StartError`, `NodeShutdown`, `ContainerStatusUnknown`) have a message of the
node."""
_CONTINUATIONS = re.compile(rb"[\x80-\xbf]{1,3}")
_HIDDEN = ("Cc", "Cf", "Cs", "Zl", "Zp")
"""Unicode categories that a terminal executes, or that change the order of the text around them."""


def from_file(data: bytes) -> str:
    """Return the message of a file with this content, or with this end of it."""
    return _text(data, FILE_BYTES)


def from_log(data: bytes) -> str:
    """Return the message of a log with this end."""
    lines = re.findall(rb"[^\n]*\n|[^\n]+", data)
    return _text(b"".join(lines[-LOG_LINES:]), LOG_BYTES)


def _text(data: bytes, limit: int) -> str:
    """Return the end of foreign bytes as printable text, in `limit` bytes of UTF-8 at most."""
    end = data[-limit:]
    if len(end) < len(data) and (cut := _CONTINUATIONS.match(end)):
        end = end[cut.end() :]  # without the last bytes of a character that was cut
    decoded = end.decode(errors="backslashreplace")
    return termination_fields.bounded("".join(map(_printable, decoded)), limit)


def _printable(character: str) -> str:
    if character in "\n\t" or unicodedata.category(character) not in _HIDDEN:
        return character
    return character.encode("unicode_escape").decode()


def read_run(run: RunDirectory, container: Object, log: Path) -> ContainerRun:
    """Return the state of a run, with its termination message once it has ended. Blocks on the disk.

    Args:
        run: the record of the run.
        container: the container's spec.
        log: the log of the run.
    """
    state = run.read()
    if state.exit is None:
        return state
    message = _message(run, container, log, state.exit)
    return replace(state, exit=replace(state.exit, termination_message=message))


def _message(run: RunDirectory, container: Object, log: Path, exit_: ContainerExit) -> str:
    if recorded := run.termination_message:
        return recorded
    path = termination_fields.private_file(container)
    if path is not None and (message := from_file(_written(run, path))):
        # The file goes with the run's /tmp when the next run starts. On a full disk the message is not
        # recorded: until then it is read from the file again.
        with contextlib.suppress(OSError):
            run.record_termination_message(message)
        return message
    if not termination_fields.falls_back(container) or exit_.code == 0 or exit_.reason not in FAILURES:
        return ""
    # One byte more than the bound, so that `_text` knows that the text is cut.
    older = _end(log.with_name(f"{log.name}.1"), LOG_BYTES + 1)  # the rotated log
    newer = _end(log, LOG_BYTES + 1)
    return from_log(older + newer)


def _written(run: RunDirectory, path: str) -> bytes:
    """Return the end of the file that the program wrote; empty if there is no such regular file."""
    try:
        fd = regular_file.open_below(run.tmp, path)
    except OSError:
        return b""
    try:
        return regular_file.read_end(fd, FILE_BYTES + 1)
    finally:
        os.close(fd)


def _end(path: Path, limit: int) -> bytes:
    """Return the end of a log; empty if it is no regular file."""
    try:
        with regular_file.open_binary(path) as file:
            return regular_file.read_end(file.fileno(), limit)
    except OSError:
        return b""

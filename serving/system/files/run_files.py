"""Small files that describe a running process. A full disk delays them, and stops no process."""

import logging
import tempfile
import threading
import time
from pathlib import Path

from serving.system.files import atomic_file

log = logging.getLogger(__name__)

RETRY_SECONDS = 2.0
"""Between attempts at a file that could not be written: short beside the time in which a disk is cleared."""

_SMALL_BYTES = 4096
"""One block of most file systems."""

_lock = threading.Lock()
_latest: dict[Path, object] = {}
"""The latest write of each file that was delayed, so that an older one does not overwrite it."""


def ensure(path: Path, content: bytes, *, mode: int | None = None, synced: bool = False) -> None:
    """Replace a file atomically; a replacement that fails is no error if the file has this content already.

    `mode` and `synced` are as for `atomic_file.replace`. The directory is created where it is missing.

    Raises:
        OSError: the file cannot be written, and has other content.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic_file.replace(path, content, mode=mode, synced=synced)
    except OSError:
        if not _has(path, content):
            raise


def write(
    path: Path,
    content: bytes,
    *,
    mode: int | None = None,
    synced: bool = False,
    retry_seconds: float = RETRY_SECONDS,
) -> None:
    """Write a file as `ensure`; where that fails, log it once and retry in a thread.

    The thread ends with the process, when it has written the file, or after a later `write` of the same file.
    """
    this_write = object()
    with _lock:
        _latest[path] = this_write
        try:
            ensure(path, content, mode=mode, synced=synced)
        except OSError as error:
            log.warning("%s cannot be written, retrying: %s", path, error.strerror)
        else:
            del _latest[path]
            return

    def retry() -> None:
        while True:
            time.sleep(retry_seconds)
            with _lock:
                if _latest.get(path) is not this_write:
                    return
                try:
                    ensure(path, content, mode=mode, synced=synced)
                except OSError:
                    continue
                del _latest[path]
            log.info("%s is written", path)
            return

    threading.Thread(target=retry, name=f"write {path.name}", daemon=True).start()


def why_not_writable(directory: Path) -> str:
    """Return why a small file cannot be written in a directory; empty if it can."""
    try:
        with tempfile.TemporaryFile(dir=directory) as file:
            file.write(bytes(_SMALL_BYTES))
            file.flush()
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _has(path: Path, content: bytes) -> bool:
    try:
        return path.read_bytes() == content
    except OSError:
        return False

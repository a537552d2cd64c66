"""Which files go into which layer, and the exact bytes of a layer around them.

Pure. The same files must give the same bytes on every machine, so nothing here depends on owners, times,
umasks or the tar library's defaults: entries are sorted, mtime, uid and gid are 0, names are empty, modes are
0644 and 0755. A layer is an uncompressed POSIX (pax) tar: its digest is also its diffID.
"""

import tarfile
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from serving import errors

ROOT = "models"
"""Everything lies below this directory, as KServe's modelcars and `oci+native` expect."""
BIG_FILE = 1024 * 1024
"""Bytes from which a file gets a layer of its own, so that it is shared with every version that has it."""
MAX_LAYERS = 60
"""overlayfs mounts of images fail near 70 layers (moby/buildkit#4810)."""
MAX_DEPTH = 64
"""Directories below each other; deeper is a mistake, and what walks a tree by recursion has to end."""
BLOCK = 512
TRAILER = bytes(2 * BLOCK)
"""End of archive: two zero blocks (POSIX.1-2001, pax)."""
WHITEOUT = ".wh."
_MAX_NAME = 255
"""Bytes in one component: NAME_MAX of Linux file systems."""


@dataclass(frozen=True)
class Entry:
    """One regular file: its path relative to the source, with `/`, and its size in bytes."""

    path: str
    size: int


@dataclass(frozen=True)
class Layer:
    """Files that share one tar, sorted by path."""

    files: tuple[Entry, ...]


def plan(files: Iterable[Entry]) -> tuple[Layer, ...]:
    """Group the files: small ones together first, then one layer per big file, in path order.

    Where that would be more than `MAX_LAYERS`, the smallest of the big files join the first layer.

    Raises:
        errors.Permanent: `InvalidOutput`, a path that no image can hold.
    """
    entries = sorted(files, key=lambda entry: entry.path)
    check_paths([entry.path for entry in entries])
    big = [entry for entry in entries if entry.size >= BIG_FILE]
    by_size = sorted(big, key=lambda entry: (-entry.size, entry.path))
    alone = set(by_size[: MAX_LAYERS - 1])
    together = tuple(entry for entry in entries if entry not in alone)
    layers = [Layer(together)] if together else []
    return (*layers, *(Layer((entry,)) for entry in entries if entry in alone))


def check_paths(paths: Sequence[str]) -> None:
    """Refuse what would unpack differently from how it was packed.

    Raises:
        errors.Permanent: `InvalidOutput`; the message names the path and the rule.
    """
    seen: dict[str, str] = {}
    for path in paths:
        if rule := broken_rule(path):
            raise errors.Permanent("InvalidOutput", f"{path!r}: {rule}")
        folded = unicodedata.normalize("NFC", path).casefold()
        if folded in seen:
            raise errors.Permanent(
                "InvalidOutput",
                f"{path!r}: duplicate of {seen[folded]!r} where case or Unicode form is folded",
            )
        seen[folded] = path
    files = frozenset(paths)
    for path in paths:
        for parent in _parents(path):
            if parent in files:
                raise errors.Permanent("InvalidOutput", f"{path!r}: {parent!r} is a file, not a directory")


def broken_rule(path: str) -> str:
    """Return the rule that a path breaks, or nothing."""
    parts = path.split("/")
    if not path or path.startswith("/"):
        return "must be a relative path"
    if any(part in {"", ".", ".."} for part in parts):
        return "must have no empty, `.` or `..` component"
    if any(part.startswith(WHITEOUT) for part in parts):
        return "must not start with `.wh.`: image layers delete files by that prefix"
    if "\0" in path or any(0xD800 <= ord(char) <= 0xDFFF for char in path):
        return "must be valid UTF-8 without NUL"
    if len(parts) > MAX_DEPTH + 1 or any(len(part.encode()) > _MAX_NAME for part in parts):
        return f"must have at most {MAX_DEPTH + 1} components of at most {_MAX_NAME} bytes"
    return ""


def _parents(path: str) -> list[str]:
    parts = path.split("/")[:-1]
    return ["/".join(parts[: i + 1]) for i in range(len(parts))]


def entries(layer: Layer) -> Iterator[tuple[bytes, Entry | None]]:
    """Yield (header bytes, file) in archive order; the file is None for directories.

    After a file's header come its bytes and `padding(size)`; after the last entry comes `TRAILER`.
    """
    made: set[str] = set()
    for file in layer.files:
        for directory in (ROOT, *(f"{ROOT}/{parent}" for parent in _parents(file.path))):
            if directory not in made:
                made.add(directory)
                yield _header(directory, 0, tarfile.DIRTYPE), None
        yield _header(f"{ROOT}/{file.path}", file.size, tarfile.REGTYPE), file


def _header(name: str, size: int, type_: bytes) -> bytes:
    info = tarfile.TarInfo(name)
    info.size = size
    info.type = type_
    info.mode = 0o755 if type_ == tarfile.DIRTYPE else 0o644
    info.mtime = 0
    info.uid = info.gid = 0
    info.uname = info.gname = ""
    return info.tobuf(tarfile.PAX_FORMAT, "utf-8", "strict")


def padding(size: int) -> bytes:
    """Return the zero bytes that fill a file's last block."""
    return bytes(-size % BLOCK)

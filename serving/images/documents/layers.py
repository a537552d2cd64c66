"""The assignment of files to layers, and the exact bytes of a layer around its files. Pure.

The same files give the same bytes on every machine: entries are sorted, mtime, uid and gid are 0, owner names
are empty, modes are 0644 and 0755. A layer is an uncompressed POSIX (pax) tar, so its digest is also its
diffID.
"""

import tarfile
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from serving import errors
from serving.resources.formats import file_list

ROOT = "models"
"""Directory of all files, as KServe's modelcars and `oci+native` expect."""
BIG_FILE = 1024 * 1024
"""Size from which a file has a layer of its own, which all versions with that file share."""
MAX_LAYERS = 60
"""overlayfs mounts of images fail near 70 layers (moby/buildkit#4810)."""
MAX_DEPTH = 64
"""Deepest nesting of directories: a deeper one is a mistake, and recursion over a tree must end."""
BLOCK = 512
TRAILER = bytes(2 * BLOCK)
"""End of archive: two zero blocks (POSIX.1-2001, pax)."""
WHITEOUT = ".wh."
"""Prefix of names by which a layer deletes files of lower layers (OCI image-spec, layer.md)."""
_MAX_NAME = 255
"""Most bytes in a component of a path: NAME_MAX of Linux file systems."""
_MAX_PATH = 3000
"""Most bytes in a path. The rest of PATH_MAX (4096) is for the directory that holds the image's files."""

_FORBIDDEN_CATEGORIES = frozenset({"Cc", "Cs", "Zl", "Zp"})
"""Unicode's categories of controls, surrogates, line separators and paragraph separators."""


@dataclass(frozen=True)
class LayerEntry:
    """One regular file: its path relative to the source, with `/`, and its size in bytes."""

    path: str
    size: int


@dataclass(frozen=True)
class LayerPlan:
    """Files that share one tar, sorted by path."""

    files: tuple[LayerEntry, ...]


def plan(files: Iterable[LayerEntry]) -> tuple[LayerPlan, ...]:
    """Group the files: one layer for all small files, then a layer per big file, in path order.

    With more big files than fit into `MAX_LAYERS`, the smallest of them join the first layer.

    Raises:
        errors.Permanent: `InvalidOutput`, a path that an image cannot hold.
    """
    entries = sorted(files, key=lambda entry: entry.path)
    check_paths([entry.path for entry in entries])
    big = [entry for entry in entries if entry.size >= BIG_FILE]
    by_size = sorted(big, key=lambda entry: (-entry.size, entry.path))
    alone = set(by_size[: MAX_LAYERS - 2])  # two layers are for the small files and for the list of all files
    together = tuple(entry for entry in entries if entry not in alone)
    layers = [LayerPlan(together)] if together else []
    return (*layers, *(LayerPlan((entry,)) for entry in entries if entry in alone))


def check_paths(paths: Sequence[str]) -> None:
    """Refuse paths that would unpack differently from how they were packed.

    Raises:
        errors.Permanent: `InvalidOutput`; the message names the path and the rule.
    """
    path_by_folded: dict[str, str] = {}
    for path in paths:
        if rule := broken_rule(path):
            raise errors.Permanent("InvalidOutput", f"{path!r}: {rule}")
        folded = _folded(path)
        if folded in path_by_folded:
            raise errors.Permanent(
                "InvalidOutput",
                f"{path!r}: duplicate of {path_by_folded[folded]!r} where case or Unicode form is folded",
            )
        path_by_folded[folded] = path
    for path in paths:
        for parent in _parents(path):
            file = path_by_folded.get(_folded(parent))
            if file == parent:
                raise errors.Permanent("InvalidOutput", f"{path!r}: {parent!r} is a file, not a directory")
            if file is not None:
                raise errors.Permanent(
                    "InvalidOutput",
                    f"{path!r}: {parent!r} is the file {file!r} where case or Unicode form is folded",
                )


def broken_rule(path: str) -> str:
    """Return the rule for paths in an image that this path breaks, or an empty string."""
    parts = path.split("/")
    if not path or path.startswith("/"):
        return "must be a relative path"
    if any(part in {"", ".", ".."} for part in parts):
        return "must have no empty, `.` or `..` component"
    if any(part.startswith(WHITEOUT) for part in parts):
        return "must not start with `.wh.`: image layers delete files by that prefix"
    if any(unicodedata.category(char) in _FORBIDDEN_CATEGORIES for char in path):
        return (
            "must be valid UTF-8 without control characters (a terminal would obey them) or line separators"
        )
    is_long = len(path.encode()) > _MAX_PATH or any(len(part.encode()) > _MAX_NAME for part in parts)
    if is_long or len(parts) > MAX_DEPTH + 1:
        return (
            f"must have at most {_MAX_PATH} bytes in at most {MAX_DEPTH + 1} components of at most"
            f" {_MAX_NAME} bytes"
        )
    return ""


def _folded(path: str) -> str:
    """Return the path as file systems that fold case or Unicode form compare it."""
    return unicodedata.normalize("NFC", path).casefold()


def _parents(path: str) -> list[str]:
    """Return the directories of a path, outermost first: `a`, `a/b` for `a/b/file`."""
    parts = path.split("/")[:-1]
    return ["/".join(parts[: i + 1]) for i in range(len(parts))]


def entries(layer: LayerPlan) -> Iterator[tuple[bytes, LayerEntry | None]]:
    """Yield (tar header, file) for each member of the layer's tar, in order; file is None for a directory.

    After a file's header come its bytes and `padding(size)`; after the last entry comes `TRAILER`.
    """
    directories: set[str] = set()
    for file in layer.files:
        for directory in (ROOT, *(f"{ROOT}/{parent}" for parent in _parents(file.path))):
            if directory not in directories:
                directories.add(directory)
                yield _header(directory, 0, tarfile.DIRTYPE), None
        yield _header(f"{ROOT}/{file.path}", file.size, tarfile.REGTYPE), file


def of_file_list(document: bytes) -> bytes:
    """Return the tar with the one file `files.json`, beside `ROOT`; `document` is its content."""
    header = _header(file_list.NAME, len(document), tarfile.REGTYPE)
    return header + document + padding(len(document)) + TRAILER


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

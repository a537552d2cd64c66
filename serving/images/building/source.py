"""Reads a directory that another process wrote, and may still be writing, without ever leaving it.

Each directory is opened relative to its parent without following links, so a name that becomes a link during
the read is an error. Only directories and regular files without further hard links are accepted. The process
that reads may have more rights than the user for whom it reads: a file that this user may not read is an
error too.
"""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from serving import errors
from serving.images.documents import layers
from serving.images.store.disk import FileStamp
from serving.system.files import trusted_path

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_REPLACED = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO})
"""Errors of open(2) where the walk has seen a file: removed, or a directory, a link or a socket since."""
_ENTER = stat.S_IXOTH
_LIST = stat.S_IROTH | stat.S_IXOTH
"""Permissions of others: a reader who does not own a file counts as others, whichever groups it is in."""
MAX_FILES = 10_000
"""Most files in a model: the manifest (at most 4 MiB) and the ModelVersion's status list each."""


@contextmanager
def open_directory(
    source: Path, trusted_root: Path | None, *, reader_uid: int | None = None, data_dir: Path | None = None
) -> Iterator[int]:
    """Yield a descriptor of the source directory.

    Args:
        source: an absolute directory.
        trusted_root: no component below this directory may be a link, nor may a link that another user may
            change lead to it; None checks the last component only.
        reader_uid: id of the user who must be able to read it; None for no user.
        data_dir: the data directory; `source` must neither contain it nor be in it. None for none.

    Raises:
        errors.Permanent: `InvalidOutput`, not absolute, missing, a link, not a directory, or forbidden.
    """
    base = trusted_root or source.parent
    if not source.is_absolute() or ".." in source.parts or not source.is_relative_to(base):
        raise errors.Permanent(
            "InvalidOutput", f"{source}: must be an absolute path below {base} without `..`"
        )
    at = source
    try:
        fd = _open_base(base, may_be_replaced=trusted_root is not None)
        try:
            at = base
            for part in source.relative_to(base).parts:
                if trusted_root is not None:
                    _check_reader(str(at), os.fstat(fd), reader_uid, _ENTER)
                at = at / part
                inner = os.open(part, _DIRECTORY, dir_fd=fd)
                os.close(fd)
                fd = inner
            _check_reader(str(at), os.fstat(fd), reader_uid, _LIST)
            if data_dir is not None:
                _check_apart(source, fd, data_dir)
            yield fd
        finally:
            os.close(fd)
    except (FileNotFoundError, NotADirectoryError) as error:
        rule = "is a link or not a directory" if at.is_symlink() or at.exists() else "does not exist"
        raise errors.Permanent("InvalidOutput", f"{at}: {rule}") from error


def _open_base(base: Path, *, may_be_replaced: bool) -> int:
    """Open the directory `base`.

    If other users may have replaced one of its components, only links that this user or root controls are
    followed.
    """
    if not may_be_replaced:
        return os.open(base, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fd, missing = trusted_path.open_deepest(str(base))
    except OSError as error:
        raise errors.Permanent("InvalidOutput", f"{base}: {error.strerror}") from error
    try:
        if missing:
            raise errors.Permanent("InvalidOutput", f"{base}: does not exist")
        # `fd` is an O_PATH descriptor, with which a directory cannot be listed.
        return os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    finally:
        os.close(fd)


def _check_apart(source: Path, fd: int, data_dir: Path) -> None:
    """Refuse the open directory `fd` if it contains `data_dir`, lies in it, or is in another mount namespace.

    The real path is read from the descriptor, as `source` may lead through links. For a directory of another
    mount namespace (below `/proc/PID/root`) that path names another file or none.
    """
    real, forbidden = Path(f"/proc/self/fd/{fd}").readlink(), data_dir.resolve()
    try:
        is_named = os.path.samestat(real.stat(), os.fstat(fd))
    except OSError:
        is_named = False
    if not is_named:
        raise errors.Permanent(
            "InvalidOutput", f"{source}: must be a directory of the machine's own file tree"
        )
    if real.is_relative_to(forbidden) or forbidden.is_relative_to(real):
        raise errors.Permanent(
            "InvalidOutput", f"{source}: must be apart from the data directory, got {real}"
        )


def _check_reader(path: str, status: os.stat_result, reader_uid: int | None, wanted: int) -> None:
    """Check that the user `reader_uid` owns the file, or that others have the permission bits `wanted`."""
    if reader_uid is None or status.st_uid == reader_uid or status.st_mode & wanted == wanted:
        return
    raise errors.Permanent(
        "InvalidOutput",
        f"{path}: must be readable for the Pod's user {reader_uid}, got owner {status.st_uid} and mode "
        f"{stat.S_IMODE(status.st_mode):04o}",
    )


def walk(root: int, reader_uid: int | None = None) -> dict[str, FileStamp]:
    """Return the stamps of all files below an open directory, by relative path.

    Args:
        root: descriptor of the directory.
        reader_uid: as of `open_directory`; the change time in a stamp makes sure that a file of this stamp
            has the owner and the mode that were checked.

    Raises:
        errors.Permanent: `InvalidOutput` for links, devices, sockets, hard links, too deep directories, and
            files and directories that the reader may not read; `TooManyFiles`.
        errors.Temporary: `OutputStillChanging`, a file or directory was removed or replaced meanwhile.
    """
    stamps: dict[str, FileStamp] = {}
    try:
        _walk(root, "", stamps, reader_uid, 0)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise still_changing(str(error.filename)) from error
    return stamps


def _walk(fd: int, prefix: str, stamps: dict[str, FileStamp], reader_uid: int | None, depth: int) -> None:
    if depth > layers.MAX_DEPTH:
        raise errors.Permanent("InvalidOutput", f"{prefix!r}: more than {layers.MAX_DEPTH} directories deep")
    with os.scandir(fd) as listing:
        names = sorted(entry.name for entry in listing)
    for name in names:
        path = f"{prefix}{name}"
        status = os.stat(name, dir_fd=fd, follow_symlinks=False)
        if stat.S_ISDIR(status.st_mode):
            inner = os.open(name, _DIRECTORY, dir_fd=fd)
            try:
                _check_reader(repr(path), os.fstat(inner), reader_uid, _LIST)
                _walk(inner, f"{path}/", stamps, reader_uid, depth + 1)
            finally:
                os.close(inner)
            continue
        _check_file(path, status)
        _check_reader(repr(path), status, reader_uid, stat.S_IROTH)
        stamps[path] = FileStamp.of(status)
        if len(stamps) > MAX_FILES:
            raise errors.Permanent("TooManyFiles", f"more than {MAX_FILES} files: pack small ones together")


def _check_file(path: str, status: os.stat_result) -> None:
    if stat.S_ISLNK(status.st_mode):
        raise errors.Permanent("InvalidOutput", f"{path!r}: is a symbolic link; write the file itself")
    if not stat.S_ISREG(status.st_mode):
        raise errors.Permanent("InvalidOutput", f"{path!r}: is not a regular file")
    if status.st_nlink > 1:
        raise errors.Permanent(
            "InvalidOutput", f"{path!r}: has {status.st_nlink} names (hard links); copy it"
        )


@contextmanager
def open_file(root: int, path: str, stamp: FileStamp) -> Iterator[BinaryIO]:
    """Open a file for reading, and check before and after the block that its stamp is `stamp`.

    `path` is relative to `root`, the descriptor of a directory.

    Raises:
        errors.Temporary: `OutputStillChanging`.
    """
    fds: list[int] = []
    try:
        fd = root
        *parents, name = path.split("/")
        for parent in parents:
            fd = os.open(parent, _DIRECTORY, dir_fd=fd)
            fds.append(fd)
        with os.fdopen(os.open(name, _FILE, dir_fd=fd), "rb", buffering=0) as file:
            _check_stamp(path, file.fileno(), stamp)
            yield file
            _check_stamp(path, file.fileno(), stamp)
    except OSError as error:
        if error.errno not in _REPLACED:
            raise
        raise still_changing(path) from error
    finally:
        for fd in fds:
            os.close(fd)


def _check_stamp(path: str, fd: int, stamp: FileStamp) -> None:
    if FileStamp.of(os.fstat(fd)) != stamp:
        raise still_changing(path)


def still_changing(path: str) -> errors.Temporary:
    """Return the error for a file that is being written."""
    return errors.Temporary(
        "OutputStillChanging", f"{path!r} changed while it was being read", retry_after=2.0
    )

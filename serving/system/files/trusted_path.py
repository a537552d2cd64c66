"""Opens a path without following symbolic links that another user may change: that user could lead root
anywhere.

Imports little, as every container shim imports it.
"""

from __future__ import annotations

import errno
import os
import stat

_OPEN = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_MOST_LINKS = 40
"""Symbolic links of one path, as Linux allows (path_resolution(7))."""


def open_deepest(path: str) -> tuple[int, list[str]]:
    """Open the deepest file that exists on an absolute path.

    Each component is opened relative to its parent. A link is followed if only this user or root may replace
    it: it belongs to one of them, and so does its directory, in which nobody else may write unless it is
    sticky.

    Returns:
        An O_PATH descriptor, and the components behind it, which do not exist.

    Raises:
        OSError: ELOOP for another link; ENOTDIR if a component that is not the last is no directory.
    """
    fd = os.open("/", _OPEN)
    try:
        components, links = _components(path), 0
        while components:
            name = components.pop()
            try:
                inner = os.open(name, _OPEN, dir_fd=fd)
            except FileNotFoundError:
                return fd, [name, *reversed(components)]
            if not stat.S_ISLNK(os.fstat(inner).st_mode):
                os.close(fd)
                fd = inner
                continue
            links += 1
            try:
                if links > _MOST_LINKS or not _is_trusted(os.fstat(inner), os.fstat(fd)):
                    raise OSError(
                        errno.ELOOP, f"{name} is a symbolic link that another user may change", path
                    )
                target = os.readlink("", dir_fd=inner)
            finally:
                os.close(inner)
            if target.startswith("/"):
                os.close(fd)
                fd = os.open("/", _OPEN)
            components += _components(target)
    except BaseException:
        os.close(fd)
        raise
    return fd, []


def _components(path: str) -> list[str]:
    """Return the components of a path, the last one first."""
    return [name for name in reversed(path.split("/")) if name]


def _is_trusted(link: os.stat_result, directory: os.stat_result) -> bool:
    users = (0, os.geteuid())
    is_closed = not directory.st_mode & (stat.S_IWGRP | stat.S_IWOTH) or directory.st_mode & stat.S_ISVTX
    return link.st_uid in users and directory.st_uid in users and bool(is_closed)

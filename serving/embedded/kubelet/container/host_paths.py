"""Finds and makes the directories and files of hostPath volumes, by descriptors and without following links.

Other Pods may own directories on the way, and replace a name in them by a link at any moment. So a path is
resolved once, the resolved path is checked, and only a file at the resolved path is made or mounted.
"""

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from serving import errors
from serving.embedded.pod_spec.volume_mounts import within
from serving.system.files import renames
from serving.system.isolation import user_ids
from serving.system.isolation.user_ids import UserIds

_WALK = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_SHOWING_OTHERS = ("/proc", "/sys", "/dev")
"""File systems of the kernel: the machine's own show processes, shared memory and devices of other Pods."""
_NAMESPACE = "trusted.slipway.namespace"
"""Extended attribute of a directory that was made for a Pod; no Pod can write it, xattr(7)."""


@dataclass(frozen=True)
class HostPaths:
    """The paths of this machine that Pods may mount."""

    data: Path
    """The data directory, which no Pod may mount."""
    roots: Sequence[str]
    """Directories below which any directory may be made for a Pod: `node.host_path_roots`."""
    user_ids: UserIds | None
    """The ids of the Pods' users; None where all Pods have the agent's user."""

    def resolve(self, text: str, kind: str, namespace: str, user: int | None) -> str:
        """Return the path of a hostPath volume without links; make it if it is a missing `DirectoryOrCreate`.

        Args:
            text: the normalised path.
            kind: the volume's type: `DirectoryOrCreate`, `Directory`, `File`, or empty for any file.
            namespace: the Pod's namespace.
            user: the Pod's user; None for the agent's.

        Raises:
            errors.Temporary: it is missing or of another type, may not be made, or leads to the data
                directory or one above it, or, where containers are kept apart, to the kernel's file systems.
        """
        real, data = os.path.realpath(text), os.path.realpath(self.data)
        if within(real, data) or within(data, real):
            raise _refusal(text, "leads to the data directory")
        if self.user_ids is not None:
            for directory in _SHOWING_OTHERS:
                if within(real, directory):
                    raise _refusal(text, f"leads to {directory}, which shows processes and memory of others")
        if kind == "DirectoryOrCreate":
            try:
                self._make(text, real, namespace, user)
            except OSError as error:
                raise _refusal(text, f"cannot be made at {real}: {error.strerror}") from error
        if not _is_of_kind(Path(real), kind):
            raise _refusal(text, f"is no {kind or 'file'}")
        return real

    def _make(self, text: str, real: str, namespace: str, user: int | None) -> None:
        """Make the directory `real` if it is missing; else hand it on from a Pod without processes."""
        with contextlib.ExitStack() as opened:
            nearest, path, missing = _nearest(real, opened)
            if not missing:
                self._inherit(nearest, namespace, user)
                return
            if user is not None and not self._may_make(nearest, path, user):
                raise _refusal(
                    text,
                    f"the Pod's user {user} may not write in {path}, so nothing is made there: make the "
                    f"directory, or add one above it to node.host_path_roots ({', '.join(self.roots)})",
                )
            if user is None:
                _make_all(text, missing, nearest, opened)
                return
            # Under another name first: an agent that is killed before it has changed the owner leaves no
            # directory at the path, in which no Pod could write.
            temporary = [f".slipway-{secrets.token_hex(8)}", *missing[1:]]
            try:
                _give(_make_all(text, temporary, nearest, opened), namespace, user)
                renames.rename_new(temporary[0], missing[0], nearest)
            except OSError as error:
                _remove_all(temporary, nearest)
                if error.errno != errno.EINVAL:
                    raise
                # The file system has no renames that replace nothing: make the directories at their path.
                _give(_make_all(text, missing, nearest, opened), namespace, user)
            except errors.Temporary:
                _remove_all(temporary, nearest)
                raise

    def _may_make(self, parent: int, path: str, user: int) -> bool:
        """Whether a directory may be made for a Pod's user in an open directory, which lies at `path`."""
        if any(within(path, os.path.realpath(root)) for root in self.roots):
            return True
        status = os.fstat(parent)
        if status.st_uid == user:
            return bool(status.st_mode & stat.S_IWUSR)
        # The only group of a Pod's user has the number of the user.
        return bool(status.st_mode & (stat.S_IWGRP if status.st_gid == user else stat.S_IWOTH))

    def _inherit(self, directory: int, namespace: str, user: int | None) -> None:
        """Give a Pod an existing directory of another Pod of its namespace, whose user has no process.

        So a Job's next attempt can write where its last attempt did.
        """
        owner = os.fstat(directory).st_uid
        if self.user_ids is None or user is None or owner == user or owner not in self.user_ids:
            return
        if _namespace_of(directory) != namespace or owner in user_ids.in_use():
            return
        for _, _, files, inner in os.fwalk(".", dir_fd=directory):
            for name in files:
                with contextlib.suppress(FileNotFoundError):
                    file = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=inner)
                    try:
                        _change_owner(file, owner, user)
                    finally:
                        os.close(file)
            _change_owner(inner, owner, user)


def _is_of_kind(path: Path, kind: str) -> bool:
    """Whether the file at `path` exists, and is of the volume's type."""
    if not kind:
        return path.exists()
    return path.is_file() if kind == "File" else path.is_dir()


def _make_all(text: str, names: Sequence[str], parent: int, opened: contextlib.ExitStack) -> int:
    """Make nested directories in an open directory; open the last one."""
    for name in names:
        os.mkdir(name, 0o755, dir_fd=parent)
        parent = _opened(os.open(name, _OPEN, dir_fd=parent), opened)
        # The owner of the parent may have renamed another directory to this name: it is refused if it belongs
        # to another user, or has entries.
        if os.fstat(parent).st_uid != os.geteuid() or os.listdir(parent):  # noqa: PTH208 by descriptor
            raise _refusal(text, "a directory was replaced while it was made")
    return parent


def _give(directory: int, namespace: str, user: int) -> None:
    """Give a new directory to a Pod's user, and remember the Pod's namespace."""
    # On a file system without trusted attributes, `_inherit` gives the directory to no later Pod.
    with contextlib.suppress(OSError):
        os.setxattr(directory, _NAMESPACE, namespace.encode())
    os.fchown(directory, user, user)


def _remove_all(names: Sequence[str], parent: int) -> None:
    """Remove nested directories in an open directory as far as they exist and are empty."""
    with contextlib.ExitStack() as opened, contextlib.suppress(OSError):
        for name in names:
            opened.callback(_remove, name, parent)
            parent = _opened(os.open(name, _WALK, dir_fd=parent), opened)


def _remove(name: str, parent: int) -> None:
    with contextlib.suppress(OSError):
        os.rmdir(name, dir_fd=parent)


class _Nearest(NamedTuple):
    """The deepest existing directory of a path."""

    directory: int
    """Its O_PATH descriptor."""
    path: str
    missing: list[str]
    """The names below it that do not exist, outer before inner."""


def _nearest(path: str, opened: contextlib.ExitStack) -> _Nearest:
    """Open the deepest existing directory of an absolute path without links."""
    directory = _opened(os.open("/", _WALK), opened)
    names = [name for name in path.split("/") if name]
    for index, name in enumerate(names):
        try:
            directory = _opened(os.open(name, _WALK, dir_fd=directory), opened)
        except FileNotFoundError:
            return _Nearest(directory, "/" + "/".join(names[:index]), names[index:])
    return _Nearest(directory, path, [])


def _opened(fd: int, opened: contextlib.ExitStack) -> int:
    """Return the descriptor, which `opened` closes at its end."""
    opened.callback(os.close, fd)
    return fd


def _namespace_of(directory: int) -> str | None:
    """Return the namespace of the Pod that a directory was made for; None if it was made otherwise."""
    try:
        return os.getxattr(f"/proc/self/fd/{directory}", _NAMESPACE).decode()
    except OSError:
        return None


def _change_owner(fd: int, owner: int, user: int) -> None:
    """Change the owner of exactly this open file, if it is `owner`."""
    if os.fstat(fd).st_uid == owner:
        os.chown(f"/proc/self/fd/{fd}", user, user)


def _refusal(text: str, reason: str) -> errors.Temporary:
    return errors.Temporary("CreateContainerConfigError", f"hostPath {text}: {reason}")

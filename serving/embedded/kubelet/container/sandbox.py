"""Isolates a container: cgroups, cores, a private view of files and processes, a user, a filter of system calls.

Runs in the forked child of the shim, before exec (or before a zygote's child runs its program); the shim is
the first process of the container's PID namespace. Standard library only. The specification has every mount;
a step that fails raises OSError, and is never skipped.
"""

from __future__ import annotations

import errno
import os
import signal
import stat

from serving.system import namespaces
from serving.system.namespaces import (
    MS_BIND,
    MS_MOVE,
    MS_NODEV,
    MS_NOSUID,
    MS_RDONLY,
    MS_REC,
    MS_REMOUNT,
)

TYPE_CHECKING = False  # as type checkers read it; the module costs half a megabyte beside every replica
if TYPE_CHECKING:
    from typing import Any


def _bind(fd: int, target: str, *, read_only: bool) -> None:
    """Bind the file of an O_PATH descriptor of this mount namespace, even if it is covered."""
    namespaces.mount(f"/proc/self/fd/{fd}", target, None, MS_BIND | MS_REC)
    flags = MS_BIND | MS_REMOUNT | MS_NOSUID | MS_NODEV | (MS_RDONLY if read_only else 0)
    namespaces.mount("none", target, None, flags)


def _rebind(fd: int, target: str) -> None:
    namespaces.mount(f"/proc/self/fd/{fd}", target, None, MS_BIND | MS_REC)


def _place(target: str, *, directory: bool) -> None:
    """Make a mount point in a tmpfs."""
    if directory:
        os.makedirs(target, mode=0o755, exist_ok=True)  # noqa: PTH103 the shim stays small
    elif not os.path.exists(target):  # noqa: PTH110 as above
        os.makedirs(os.path.dirname(target), mode=0o755, exist_ok=True)  # noqa: PTH103, PTH120 as above
        os.close(os.open(target, os.O_WRONLY | os.O_CREAT, 0o644))


def _copy_entries(fds: dict[str, int], target: str) -> None:
    """Show the entries of a directory in the tmpfs that replaces it."""
    for name, fd in fds.items():
        mode = os.fstat(fd).st_mode
        path = f"{target}/{name}"
        if stat.S_ISLNK(mode):
            os.symlink(os.readlink("", dir_fd=fd), path)  # noqa: PTH211 as above
        elif stat.S_ISDIR(mode) or stat.S_ISREG(mode):
            _place(path, directory=stat.S_ISDIR(mode))
            _rebind(fd, path)


def _entries(path: str) -> dict[str, int]:
    flags = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
    return {name: os.open(f"{path}/{name}", flags) for name in os.listdir(path)}  # noqa: PTH208 as above


def _new_root() -> None:
    """Replace `/` by a tmpfs with the same entries, so that top-level mount points can be made in it."""
    fds = _entries("/")
    namespaces.mount_tmpfs("/tmp")  # noqa: S108 it is moved
    _copy_entries(fds, "/tmp")  # noqa: S108 as above
    os.chdir("/tmp")  # noqa: S108 as above
    namespaces.mount(".", "/", None, MS_MOVE)
    os.chroot(".")
    os.chdir("/")
    for fd in fds.values():
        os.close(fd)


def _shadow(path: str) -> None:
    """Replace a directory by a tmpfs with the same entries, so that mount points can be made in it."""
    fds = _entries(path)
    namespaces.mount_tmpfs(path)
    _copy_entries(fds, path)
    for fd in fds.values():
        os.close(fd)


def _mount_point(target: str, writable: set[str], *, directory: bool) -> None:
    """Make the mount point `target`, without writing to the machine's file systems.

    `writable` are the directories that are in a tmpfs by now.
    """
    if os.path.exists(target):  # noqa: PTH110 as above
        return
    parent = os.path.dirname(target)  # noqa: PTH120 as above
    while not os.path.exists(parent):  # noqa: PTH110 as above
        parent = os.path.dirname(parent)  # noqa: PTH120 as above
    if parent not in writable and parent != "/":
        _shadow(parent)
    writable.add(parent)
    _place(target, directory=directory)
    while target != parent:
        target = os.path.dirname(target)  # noqa: PTH120 as above
        writable.add(target)


def _isolate_files(view: dict[str, Any], user: int) -> None:
    """Build the container's private view of files and processes: see `launch._isolated_files`."""
    mounts = view["mounts"]
    shares_memory = any(mount["target"] == namespaces.SHARED_MEMORY for mount in mounts)
    namespaces.unshare(namespaces.CLONE_NEWNS | (0 if shares_memory else namespaces.CLONE_NEWIPC))
    namespaces.make_mounts_private()
    opened = {
        path: os.open(path, os.O_PATH | os.O_CLOEXEC)
        for path in {view["tmp"], *view["keep"], *(m["source"] for m in mounts if m["source"])}
    }
    for mount in mounts:
        if mount["is_resolved"]:
            _check(opened[mount["source"]], mount["source"])
    tops = {"/" + mount["target"].split("/")[1] for mount in mounts}
    if not all(os.path.exists(top) for top in tops):  # noqa: PTH110 as above
        _new_root()
    covered = [path for path in sorted(view["cover"]) if os.path.isdir(path)]  # noqa: PTH112 as above
    for path in covered:
        if os.path.isdir(path):  # noqa: PTH112 a cover inside a cover is gone
            namespaces.mount_tmpfs(path)
    _bind(opened[view["tmp"]], "/tmp", read_only=False)  # noqa: S108 the container's own
    for path in view["keep"]:
        if any(path.startswith(cover + "/") for cover in [*covered, "/tmp"]):  # noqa: S108 as above
            _place(path, directory=True)
            _bind(opened[path], path, read_only=True)
    for path in view["hide"]:
        if os.path.isdir(path):  # noqa: PTH112 as above
            namespaces.mount_tmpfs(path)
    if not shares_memory:
        namespaces.mount_own_shared_memory()
    writable: set[str] = set(covered)
    for mount in mounts:
        _volume(mount, opened, writable, user)
    namespaces.mount_own_proc()  # last, as /proc/self/fd names the descriptors above


def _check(fd: int, path: str) -> None:
    """Raise OSError unless this file lies at `path`: since it was checked, a Pod may have put a link in the way."""
    opened = os.readlink(f"/proc/self/fd/{fd}")  # noqa: PTH115 as above
    if opened != path:
        raise OSError(
            errno.ESTALE, f"the hostPath was replaced after it was checked, and leads to {opened}", path
        )


def _volume(mount: dict[str, Any], opened: dict[str, int], writable: set[str], user: int) -> None:
    target = mount["target"]
    if mount["files"] is None:
        fd = opened[mount["source"]]
        _mount_point(target, writable, directory=stat.S_ISDIR(os.fstat(fd).st_mode))
        _bind(fd, target, read_only=mount["read_only"])
        return
    _mount_point(target, writable, directory=True)
    namespaces.mount_tmpfs(target, "mode=755,size=2m")
    for name, content, mode in mount["files"]:
        path = f"{target}/{name}"
        os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)  # noqa: PTH103, PTH120 as above
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o400)
        os.write(fd, bytes.fromhex(content))
        os.fchown(fd, user, user)
        os.fchmod(fd, mode)
        os.close(fd)
    namespaces.mount("none", target, None, MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV)


def enter(spec: dict[str, Any]) -> None:
    """Enter the sandbox of a specification, or raise OSError; the caller executes next."""
    os.umask(0o022)  # also for mount points, which another user enters
    if spec["join"]:
        _join(spec["cgroups"])
    if spec["user"] is not None:
        with open("/proc/self/oom_score_adj", "w") as file:  # noqa: PTH123 as above
            file.write("0")
        _isolate_files(spec["view"], spec["user"])
    _drop(spec)


def join(spec: dict[str, Any]) -> None:
    """Enter the running container of `spec["pid"]`; the caller executes next.

    A process cannot change its PID namespace. So this function forks, and returns in the child; this process
    ends with the child's exit status.
    """
    os.umask(0o022)
    _join(spec["cgroups"])
    if spec["user"] is not None:
        namespaces.join(spec["pid"], ("pid", "ipc", "mnt"))
        parent = os.pidfd_open(os.getpid())
        child = os.fork()
        if child:
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            os._exit(code if code >= 0 else 128 - code)
        namespaces.die_with(parent)
        os.close(parent)
    _drop(spec)


def move_to_new_cgroups(pid: int, name: str, parents: list[str]) -> list[str]:
    """Move a waiting process to a new cgroup `name` below each parent; return them, or none if one failed.

    `pid` is its id in the PID namespace of this process, as the kernel reads it: cgroups(7).
    """
    groups = [f"{parent}/{name}" for parent in parents]
    try:
        for group in groups:
            os.mkdir(group)  # noqa: PTH102 as above
            with open(f"{group}/cgroup.procs", "w") as file:  # noqa: PTH123 as above
                file.write(str(pid))
    except OSError:
        return []
    return groups


def _join(groups: list[str]) -> None:
    for group in groups:
        with open(f"{group}/cgroup.procs", "w") as file:  # noqa: PTH123 as above
            file.write("0")


def _drop(spec: dict[str, Any]) -> None:
    if spec["cores"]:
        os.sched_setaffinity(0, spec["cores"])
    if spec["user"] is not None:
        namespaces.become(spec["user"])
    namespaces.prctl(namespaces.PR_SET_NO_NEW_PRIVS, 1)
    namespaces.prctl(namespaces.PR_SET_PDEATHSIG, signal.SIGKILL)
    os.chdir(spec["cwd"])
    if spec["filter"]:
        namespaces.filter_system_calls(bytes.fromhex(spec["filter"]))

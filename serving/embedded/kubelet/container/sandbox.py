"""Isolates a container from the machine: cgroups, processor cores, a private view of the files, another user.

Runs in the forked child of the shim, before exec (or before a zygote's child runs its program). Standard
library only. The specification has every mount; a step that fails raises OSError, and is never skipped.
"""

from __future__ import annotations

import ctypes
import os
import signal
import stat

TYPE_CHECKING = False  # as type checkers read it; the module costs half a megabyte beside every replica
if TYPE_CHECKING:
    from typing import Any

# <linux/mount.h>, <linux/sched.h>, <linux/prctl.h>
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_REMOUNT = 1, 2, 4, 32
MS_BIND, MS_MOVE, MS_REC, MS_PRIVATE = 4096, 8192, 16384, 1 << 18
CLONE_NEWNS = 0x00020000
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 1, 4, 36, 38

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, operation: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), operation)


def _prctl(option: int, value: int) -> None:
    _check(_libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0), f"prctl {option}")


def become_subreaper() -> None:
    """Become the parent of the container's orphans, so that none escapes."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


def die_with(parent: int | None) -> None:
    """Let the kernel kill this process when `parent`, its parent, ends; None revokes it."""
    _prctl(PR_SET_PDEATHSIG, 0 if parent is None else signal.SIGKILL)
    if parent is not None and os.getppid() != parent:
        os._exit(0)


def be_inspectable() -> None:
    """Own this process's entries in /proc, which root owns after a change of user, as after an exec."""
    _prctl(PR_SET_DUMPABLE, 1)


def _mount(source: str, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    encoded = [None if text is None else text.encode() for text in (source, target, kind, data)]
    _check(
        _libc.mount(encoded[0], encoded[1], encoded[2], ctypes.c_ulong(flags), encoded[3]),
        f"mount on {target}",
    )


def _tmpfs(target: str, options: str = "mode=755,size=1m") -> None:
    _mount("slipway", target, "tmpfs", MS_NOSUID | MS_NODEV, options)


def _bind(fd: int, target: str, *, read_only: bool) -> None:
    """Bind the file of an O_PATH descriptor of this mount namespace, even if it is covered."""
    _mount(f"/proc/self/fd/{fd}", target, None, MS_BIND | MS_REC)
    flags = MS_BIND | MS_REMOUNT | MS_NOSUID | MS_NODEV | (MS_RDONLY if read_only else 0)
    _mount("none", target, None, flags)


def _rebind(fd: int, target: str) -> None:
    _mount(f"/proc/self/fd/{fd}", target, None, MS_BIND | MS_REC)


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
    _tmpfs("/tmp")  # noqa: S108 it is moved
    _copy_entries(fds, "/tmp")  # noqa: S108 as above
    os.chdir("/tmp")  # noqa: S108 as above
    _mount(".", "/", None, MS_MOVE)
    os.chroot(".")
    os.chdir("/")
    for fd in fds.values():
        os.close(fd)


def _shadow(path: str) -> None:
    """Replace a directory by a tmpfs with the same entries, so that mount points can be made in it."""
    fds = _entries(path)
    _tmpfs(path)
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


def _view(view: dict[str, Any], uid: int, gid: int) -> None:
    """Build the container's private view of the files: see `launch._view`."""
    _check(_libc.unshare(CLONE_NEWNS), "unshare")
    _mount("none", "/", None, MS_REC | MS_PRIVATE)
    mounts = view["mounts"]
    opened = {
        path: os.open(path, os.O_PATH | os.O_CLOEXEC)
        for path in {view["tmp"], *view["keep"], *(m["source"] for m in mounts if m["source"])}
    }
    tops = {"/" + mount["target"].split("/")[1] for mount in mounts}
    if not all(os.path.exists(top) for top in tops):  # noqa: PTH110 as above
        _new_root()
    covered = [path for path in sorted(view["cover"]) if os.path.isdir(path)]  # noqa: PTH112 as above
    for path in covered:
        if os.path.isdir(path):  # noqa: PTH112 a cover inside a cover is gone
            _tmpfs(path)
    _bind(opened[view["tmp"]], "/tmp", read_only=False)  # noqa: S108 the container's own
    for path in view["keep"]:
        if any(path.startswith(cover + "/") for cover in [*covered, "/tmp"]):  # noqa: S108 as above
            _place(path, directory=True)
            _bind(opened[path], path, read_only=True)
    for path in view["hide"]:
        if os.path.isdir(path):  # noqa: PTH112 as above
            _tmpfs(path)
    shares_memory = any(mount["target"] == "/dev/shm" for mount in mounts)  # noqa: S108 as above
    if os.path.isdir("/dev/shm") and not shares_memory:  # noqa: PTH112, S108 as above
        _tmpfs("/dev/shm", "mode=1777")  # noqa: S108 as above
    writable: set[str] = set(covered)
    for mount in mounts:
        _volume(mount, opened, writable, uid, gid)


def _volume(mount: dict[str, Any], opened: dict[str, int], writable: set[str], uid: int, gid: int) -> None:
    target = mount["target"]
    if mount["files"] is None:
        fd = opened[mount["source"]]
        _mount_point(target, writable, directory=stat.S_ISDIR(os.fstat(fd).st_mode))
        _bind(fd, target, read_only=mount["read_only"])
        return
    _mount_point(target, writable, directory=True)
    _tmpfs(target, "mode=755,size=2m")
    for name, content, mode in mount["files"]:
        path = f"{target}/{name}"
        os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)  # noqa: PTH103, PTH120 as above
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o400)
        os.write(fd, bytes.fromhex(content))
        os.fchown(fd, uid, gid)
        os.fchmod(fd, mode)
        os.close(fd)
    _mount("none", target, None, MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV)


def enter(spec: dict[str, Any]) -> None:
    """Enter the sandbox of a specification, or raise OSError; the caller executes next."""
    os.umask(0o022)  # also for mount points, which another user enters
    if spec["join"]:
        _join(spec["cgroups"])
    if spec["user"] is not None:
        with open("/proc/self/oom_score_adj", "w") as file:  # noqa: PTH123 as above
            file.write("0")
        _view(spec["view"], *spec["user"])
    _drop(spec)


def join(spec: dict[str, Any]) -> None:
    """Enter the running container of `spec["pid"]`; the caller executes next."""
    os.umask(0o022)
    _join(spec["cgroups"])
    if spec["user"] is not None:
        handle = os.open(f"/proc/{spec['pid']}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
        _check(_libc.setns(handle, CLONE_NEWNS), "setns")
    _drop(spec)


def move_to_new_cgroups(pid: int, parents: list[str]) -> list[str]:
    """Move a waiting process to a new cgroup below each parent; return them, or none if one failed."""
    groups = [f"{parent}/{pid}" for parent in parents]
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
        uid, gid = spec["user"]
        os.setgroups([])
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)
    _prctl(PR_SET_NO_NEW_PRIVS, 1)
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    os.chdir(spec["cwd"])

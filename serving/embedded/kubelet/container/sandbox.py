"""Isolates a container: cgroups, cores, a private view of files and processes, a user, a filter of system
calls.

Runs in the forked child of the shim, before exec (or before a zygote's child runs its program); the shim is
the first process of the container's PID namespace. The specification has every mount; a step that fails
raises OSError, and is never skipped.

Imports little (no pathlib), as every container shim imports it, and one runs beside each replica.
"""

from __future__ import annotations

import errno
import os
import signal
import stat

from serving.system.files import trusted_path
from serving.system.isolation import namespaces
from serving.system.isolation.namespaces import (
    MS_BIND,
    MS_MOVE,
    MS_NODEV,
    MS_NOEXEC,
    MS_NOSUID,
    MS_RDONLY,
    MS_REC,
    MS_REMOUNT,
)

TYPE_CHECKING = False  # as type checkers read it; the module costs half a megabyte beside every replica
if TYPE_CHECKING:
    from typing import Any


_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_SPARE_PAGES = 16
"""Pages of a volume's tmpfs in reserve, beside those of its files; each file takes whole pages."""
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def _path(fd: int) -> str:
    """Return a path that leads to an open file, even if it is covered by a mount."""
    return f"/proc/self/fd/{fd}"


class _Writable:
    """The container's own mounts, in which mount points are made without writing to the machine's files."""

    def __init__(self) -> None:
        self.devices: set[int] = set()
        """Of the tmpfs."""
        self.mounts: set[int] = set()
        """Ids of the bind mounts of its /tmp and of emptyDir volumes, whose device may be the machine's."""

    def has(self, fd: int) -> bool:
        """Whether an open file lies in one of them."""
        return os.fstat(fd).st_dev in self.devices or _mount_id(fd) in self.mounts


def _mount_id(fd: int) -> int:
    """Return the id of the mount in which an open file lies: proc_pid_fdinfo(5)."""
    with open(f"/proc/self/fdinfo/{fd}") as file:  # noqa: PTH123 imports little
        return next(int(line.split()[1]) for line in file if line.startswith("mnt_id:"))


def _bind(fd: int, point: int, *, read_only: bool) -> int:
    """Bind-mount the open file `fd` on the open mount point `point`; return the id of the mount.

    Closes `point`. Both are O_PATH descriptors of this mount namespace.
    """
    namespaces.mount(_path(fd), _path(point), None, MS_BIND | MS_REC)
    bound = _open_mount(point)
    _check_mount(os.path.samestat(os.fstat(bound), os.fstat(fd)), bound)
    # The kernel ignores these flags in the first mount(2) of a bind mount: mount(2). The second one replaces
    # those of the source's mount, which may be read-only or noexec on this machine.
    flags = MS_BIND | MS_REMOUNT | MS_NOSUID | MS_NODEV | (MS_RDONLY if read_only else 0)
    flags |= os.fstatvfs(bound).f_flag & (MS_RDONLY | MS_NOEXEC)
    namespaces.mount("none", _path(bound), None, flags)
    mount_id = _mount_id(bound)
    os.close(bound)
    return mount_id


def _mount_tmpfs(point: int, options: str = "mode=755,size=1m") -> int:
    """Mount a tmpfs on an open directory, and close the directory; return a descriptor of the tmpfs."""
    device = os.fstat(point).st_dev
    namespaces.mount_tmpfs(_path(point), options)
    mounted = _open_mount(point)
    status = os.fstat(mounted)
    _check_mount(status.st_dev != device and status.st_uid == 0, mounted)
    return mounted


def _open_mount(point: int) -> int:
    """Open the root of the mount that was just made on an open file, and close that file.

    The descriptor `point` is of the file below the mount, so the path is opened again.
    """
    target = os.readlink(_path(point))  # noqa: PTH115 imports little
    os.close(point)
    fd, missing = trusted_path.open_deepest(target)
    _check_mount(not missing, fd)
    return fd


def _check_mount(is_own: bool, fd: int) -> None:  # noqa: FBT001 a condition
    """Raise OSError unless the opened mount is the one that was just made."""
    if not is_own:
        path = os.readlink(_path(fd))  # noqa: PTH115 imports little
        raise OSError(errno.ESTALE, "a process of the Pod replaced the mount point of a volume", path)


def _make(fd: int, missing: list[str], *, directory: bool) -> int:
    """Make the missing components of a mount point in the open directory `fd`; return the open mount point.

    Closes `fd`. `directory`: whether the last component is a directory, or else an empty file.
    """
    for index, name in enumerate(missing):
        if directory or index < len(missing) - 1:
            os.mkdir(name, 0o755, dir_fd=fd)
        else:
            os.close(os.open(name, _CREATE, 0o644, dir_fd=fd))
        inner = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd)
        os.close(fd)
        fd = inner
    return fd


def _copy_entries(fds: dict[str, int], target: int) -> None:
    """Show the links, directories and regular files of a directory in the tmpfs `target` that replaces it.

    `fds` are the directory's entries, which are closed; those of other types are not shown.
    """
    for name, fd in fds.items():
        status = os.fstat(fd)
        if stat.S_ISLNK(status.st_mode):
            os.symlink(os.readlink("", dir_fd=fd), name, dir_fd=target)
            os.chown(name, status.st_uid, status.st_gid, dir_fd=target, follow_symlinks=False)
        elif stat.S_ISDIR(status.st_mode) or stat.S_ISREG(status.st_mode):
            point = _make(os.dup(target), [name], directory=stat.S_ISDIR(status.st_mode))
            namespaces.mount(_path(fd), _path(point), None, MS_BIND | MS_REC)
            os.close(point)
        os.close(fd)


def _entries(directory: int) -> dict[str, int]:
    """Open the entries of an open directory; return their O_PATH descriptors by name."""
    flags = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
    names = os.listdir(_path(directory))  # noqa: PTH208 imports little
    return {name: os.open(name, flags, dir_fd=directory) for name in names}


def _new_root() -> None:
    """Replace `/` by a tmpfs with the same entries, so that top-level mount points can be made in it."""
    root = os.open("/", os.O_PATH | os.O_CLOEXEC)
    fds = _entries(root)
    namespaces.mount_tmpfs("/tmp")  # noqa: S108 it is moved
    new = os.open("/tmp", os.O_PATH | os.O_CLOEXEC)  # noqa: S108 as above
    _copy_entries(fds, new)
    os.fchdir(new)
    namespaces.mount(".", "/", None, MS_MOVE)
    os.chroot(".")
    os.chdir("/")
    os.close(new)
    os.close(root)


def _shadow(directory: int) -> int:
    """Replace an open directory by a tmpfs with the same entries, so that mount points can be made in it."""
    fds = _entries(directory)
    tmpfs = _mount_tmpfs(directory)
    _copy_entries(fds, tmpfs)
    return tmpfs


def _mount_point(target: str, writable: _Writable, *, directory: bool) -> int:
    """Open the mount point `target`, or make it without writing to the machine's files.

    A process of the Pod may change its volumes meanwhile: all is opened, made and mounted relative to
    descriptors, without following its links.
    """
    fd, missing = trusted_path.open_deepest(target)
    if missing and not writable.has(fd):
        fd = _shadow(fd)
        writable.devices.add(os.fstat(fd).st_dev)
    return _make(fd, missing, directory=directory)


def _isolate_files(view: dict[str, Any], user: int) -> None:
    """Build the container's private view of files and processes.

    Args:
        view: from `launch._isolated_files`: the directories of `cover` become empty, and `tmp` becomes /tmp;
            then the directories of `keep` inside these have their content again, read-only; then those of
            `hide` become empty; `mounts` are the volumes and other mounts, in order.
        user: owner of the files of ConfigMaps and Secrets.
    """
    mounts = view["mounts"]
    shares_memory = any(mount["target"] == namespaces.SHARED_MEMORY for mount in mounts)
    namespaces.unshare(namespaces.CLONE_NEWNS | (0 if shares_memory else namespaces.CLONE_NEWIPC))
    namespaces.make_mounts_private()
    # All sources are opened before a cover, /tmp or a volume hides them.
    opened = {
        path: os.open(path, os.O_PATH | os.O_CLOEXEC)
        for path in {view["tmp"], *view["keep"], *(m["source"] for m in mounts if m["source"])}
    }
    for mount in mounts:
        if mount["is_resolved"]:
            _check_path(opened[mount["source"]], mount["source"])
    tops = {"/" + mount["target"].split("/")[1] for mount in mounts}
    writable = _Writable()
    if not all(os.path.exists(top) for top in tops):  # noqa: PTH110 imports little
        _new_root()
        writable.devices.add(os.stat("/").st_dev)  # noqa: PTH116 imports little
    covered = [path for path in sorted(view["cover"]) if os.path.isdir(path)]  # noqa: PTH112 imports little
    for path in covered:
        if os.path.isdir(path):  # noqa: PTH112 a cover inside a cover is gone
            namespaces.mount_tmpfs(path)
            writable.devices.add(os.stat(path).st_dev)  # noqa: PTH116 imports little
    private = os.open("/tmp", os.O_PATH | os.O_CLOEXEC)  # noqa: S108 a mount point
    writable.mounts.add(_bind(opened[view["tmp"]], private, read_only=False))
    for path in view["keep"]:
        if any(path.startswith(cover + "/") for cover in [*covered, "/tmp"]):  # noqa: S108 as above
            point, missing = trusted_path.open_deepest(path)
            _bind(opened[path], _make(point, missing, directory=True), read_only=True)
    for path in view["hide"]:
        if os.path.isdir(path):  # noqa: PTH112 imports little
            namespaces.mount_tmpfs(path)
    if not shares_memory:
        namespaces.mount_own_shared_memory()
    namespaces.mount_own_terminals()
    for mount in mounts:
        _mount_volume(mount, opened, writable, user)
    namespaces.mount_own_proc()  # last, as /proc/self/fd names the descriptors above


def _check_path(fd: int, path: str) -> None:
    """Raise OSError unless this file lies at `path`: a Pod may have put a link there since its check."""
    opened = os.readlink(f"/proc/self/fd/{fd}")  # noqa: PTH115 imports little
    if opened != path:
        raise OSError(
            errno.ESTALE, f"the hostPath was replaced after it was checked, and leads to {opened}", path
        )


def _mount_volume(mount: dict[str, Any], opened: dict[str, int], writable: _Writable, user: int) -> None:
    """Bind-mount a file or directory, or mount a read-only tmpfs with the files of a ConfigMap or Secret."""
    target = mount["target"]
    if mount["files"] is None:
        fd = opened[mount["source"]]
        point = _mount_point(target, writable, directory=stat.S_ISDIR(os.fstat(fd).st_mode))
        mount_id = _bind(fd, point, read_only=mount["read_only"])
        if mount.get("is_own") and not mount["read_only"]:
            writable.mounts.add(mount_id)
        return
    files = [(name, bytes.fromhex(content), mode) for name, content, mode in mount["files"]]
    pages = _SPARE_PAGES + sum(-(-len(content) // _PAGE_BYTES) for _, content, _ in files)  # rounded up
    point = _mount_point(target, writable, directory=True)
    tmpfs = _mount_tmpfs(point, f"mode=755,size={pages * _PAGE_BYTES}")
    for name, content, mode in files:
        path = f"{_path(tmpfs)}/{name}"
        os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)  # noqa: PTH103, PTH120 imports little
        fd = os.open(path, _CREATE, 0o400)
        view = memoryview(content)
        while view:
            view = view[os.write(fd, view) :]
        os.fchown(fd, user, user)
        os.fchmod(fd, mode)
        os.close(fd)
    namespaces.mount("none", _path(tmpfs), None, MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV)
    os.close(tmpfs)


def enter(spec: dict[str, Any]) -> None:
    """Enter the sandbox of a specification, or raise OSError; then the caller executes the program."""
    os.umask(0o022)  # also for mount points, which another user enters
    if spec["join"]:
        _join(spec["cgroups"])
    with open("/proc/self/oom_score_adj", "w") as file:  # noqa: PTH123 imports little
        file.write(str(spec["oom_score"]))
    if spec["user"] is not None:
        _isolate_files(spec["view"], spec["user"])
    _drop_privileges(spec)


def join(spec: dict[str, Any]) -> None:
    """Enter the running container of `spec["pid"]`; then the caller executes the command.

    A process cannot change its PID namespace. So this function forks, and returns in the child; this process
    ends with the child's exit status, or 128 + the number of the signal that killed the child.
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
    _drop_privileges(spec)


def move_to_new_cgroups(pid: int, name: str, parents: list[str]) -> list[str]:
    """Move a waiting process to a new cgroup `name` below each parent; return them, or none if one failed.

    `pid` is its id in the PID namespace of this process, as the kernel reads it: cgroups(7).
    """
    groups = [f"{parent}/{name}" for parent in parents]
    try:
        for group in groups:
            os.mkdir(group)  # noqa: PTH102 imports little
            with open(f"{group}/cgroup.procs", "w") as file:  # noqa: PTH123 imports little
                file.write(str(pid))
    except OSError:
        return []
    return groups


def _join(groups: list[str]) -> None:
    for group in groups:
        with open(f"{group}/cgroup.procs", "w") as file:  # noqa: PTH123 imports little
            file.write("0")  # the writing process, cgroups(7)


def _drop_privileges(spec: dict[str, Any]) -> None:
    """Limit this process to its cores, its user and the allowed system calls; it dies with its parent."""
    if spec["cores"]:
        os.sched_setaffinity(0, spec["cores"])
    if spec["user"] is not None:
        namespaces.become(spec["user"])
    namespaces.prctl(namespaces.PR_SET_NO_NEW_PRIVS, 1)
    namespaces.prctl(namespaces.PR_SET_PDEATHSIG, signal.SIGKILL)
    os.chdir(spec["cwd"])
    if spec["filter"]:
        namespaces.filter_system_calls(bytes.fromhex(spec["filter"]))

"""Linux namespaces, mounts and process attributes, by system calls (ctypes).

Imports little, as every container shim imports it, and one runs beside each replica. Every function raises
OSError with the name of the operation where the kernel refuses it.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal

# <linux/mount.h>, <linux/sched.h>, <linux/prctl.h>
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT = 1, 2, 4, 8, 32
MS_BIND, MS_MOVE, MS_REC, MS_PRIVATE = 4096, 8192, 16384, 1 << 18
CLONE_NEWNS, CLONE_NEWIPC, CLONE_NEWPID = 0x00020000, 0x08000000, 0x20000000
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 1, 4, 36, 38
# <asm/unistd.h>, <linux/seccomp.h>, <linux/filter.h>
SECCOMP = {"x86_64": 317, "aarch64": 277}
"""System call number of seccomp(2), by machine."""
_SET_MODE_FILTER = 1
_SPEC_ALLOW = 4
"""Flag of a filter that leaves speculation on: without it, Linux before 5.16 slows all memory accesses."""
_INSTRUCTION_BYTES = 8
"""Size of struct sock_filter."""

SHARED_MEMORY = "/dev/shm"  # noqa: S108 a mount point
_TERMINALS, _NEW_TERMINAL = "/dev/pts", "/dev/ptmx"
_MOST_TERMINALS = 64
"""Most pseudo-terminals of a container. The machine has 4,096 for all (`kernel.pty.max`)."""

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, operation: str) -> None:
    """Raise the error of a system call whose result is not 0."""
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), operation)


def prctl(option: int, value: int) -> None:
    """Set an attribute of this process."""
    _check(_libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0), f"prctl {option}")


class _Program(ctypes.Structure):
    """struct sock_fprog."""

    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def filter_system_calls(program: bytes) -> None:
    """Install a BPF filter (`seccomp.system_call_filter`) for this thread and its children, for good.

    Needs `PR_SET_NO_NEW_PRIVS`.
    """
    add_filter(program, _SPEC_ALLOW)


def add_filter(program: bytes, flags: int) -> int:
    """Install a BPF filter, as `filter_system_calls`, with flags of seccomp(2).

    Returns the result of seccomp(2): with SECCOMP_FILTER_FLAG_NEW_LISTENER a descriptor, else 0.
    """
    number = SECCOMP[os.uname().machine]
    filter_ = _Program(len(program) // _INSTRUCTION_BYTES, program)
    result: int = _libc.syscall(
        ctypes.c_long(number), _SET_MODE_FILTER, ctypes.c_ulong(flags), ctypes.byref(filter_)
    )
    _check(min(result, 0), "seccomp")
    return result


def mount(source: str, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    """Mount a file system, or change a mount."""
    encoded = [None if text is None else text.encode() for text in (source, target, kind, data)]
    _check(
        _libc.mount(encoded[0], encoded[1], encoded[2], ctypes.c_ulong(flags), encoded[3]),
        f"mount on {target}",
    )


def mount_tmpfs(target: str, options: str = "mode=755,size=1m") -> None:
    """Mount an empty tmpfs."""
    mount("slipway", target, "tmpfs", MS_NOSUID | MS_NODEV, options)


def make_mounts_private() -> None:
    """Stop the propagation of mounts and unmounts between this mount namespace and others."""
    mount("none", "/", None, MS_REC | MS_PRIVATE)


def mount_own_shared_memory() -> None:
    """Mount an empty tmpfs over the directory of POSIX shared memory, where the machine has it."""
    if os.path.isdir(SHARED_MEMORY):  # noqa: PTH112 imports little
        mount_tmpfs(SHARED_MEMORY, "mode=1777")


def mount_own_terminals() -> None:
    """Mount a new, empty devpts over the machine's pseudo-terminals, where the machine has them."""
    if os.path.isdir(_TERMINALS):  # noqa: PTH112 imports little
        options = f"newinstance,ptmxmode=0666,mode=0620,max={_MOST_TERMINALS}"
        mount("devpts", _TERMINALS, "devpts", MS_NOSUID | MS_NOEXEC, options)
        # A link leads to `pts/ptmx`, which is of the new instance already.
        if not os.path.islink(_NEW_TERMINAL):  # noqa: PTH114 imports little
            mount(f"{_TERMINALS}/ptmx", _NEW_TERMINAL, None, MS_BIND)


def mount_own_proc() -> None:
    """Mount a /proc that shows the processes of this PID namespace alone."""
    mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)


def become(user: int) -> None:
    """Change from root to a user id and the group id of the same number, without supplementary groups."""
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)


def unshare(flags: int) -> None:
    """Leave namespaces (CLONE_NEW flags) for new ones; a new PID namespace is for later children only."""
    _check(_libc.unshare(flags), "unshare")


def join(pid: int, kinds: tuple[str, ...]) -> None:
    """Enter namespaces of a process, by name in /proc/PID/ns; a PID namespace is for later children only."""
    handles = [os.open(f"/proc/{pid}/ns/{kind}", os.O_RDONLY | os.O_CLOEXEC) for kind in kinds]
    for handle in handles:
        _check(_libc.setns(handle, 0), "setns")
        os.close(handle)


class NewPidNamespace:
    """A context in which the next child of this thread is the first process of a new PID namespace.

    A child that is forked in the context must call `detach`: the end of the context returns to the earlier
    namespace, which the kernel refuses to the child. One child per context: the kernel refuses another after
    the first has ended.
    """

    def __enter__(self) -> NewPidNamespace:
        self._own = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
        try:
            unshare(CLONE_NEWPID)
        except OSError:
            os.close(self._own)
            raise
        return self

    def detach(self) -> None:
        """Keep the new namespace after the end of the context; called in the forked child."""
        os.close(self._own)
        self._own = -1

    def __exit__(self, *_: object) -> None:
        if self._own >= 0:
            _check(_libc.setns(self._own, CLONE_NEWPID), "setns")
            os.close(self._own)


def can_make_pid_namespace() -> bool:
    """Whether this process may make a PID namespace: root may, unless a container lacks CAP_SYS_ADMIN."""
    try:
        with NewPidNamespace():
            return True
    except PermissionError:
        return False


def is_first_process() -> bool:
    """Whether this is the first process of its PID namespace: all others end with it."""
    return os.getpid() == 1


def machine_pid() -> int:
    """Return the id of this process in the PID namespace of /proc, which may not be its own."""
    return int(os.readlink("/proc/self"))  # noqa: PTH115 imports little


def die_with(parent: int | None) -> None:
    """Let the kernel kill this process when its parent ends.

    Args:
        parent: a pidfd of the parent, which may have ended by now; None revokes an earlier call.
    """
    prctl(PR_SET_PDEATHSIG, 0 if parent is None else signal.SIGKILL)
    # The kernel sends no signal if the parent ended before; the pidfd of an ended process is readable.
    if parent is not None and select.select([parent], [], [], 0)[0]:
        os._exit(0)

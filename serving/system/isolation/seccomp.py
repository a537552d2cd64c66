"""The filter of system calls that containers and load generators run under: seccomp(2), built by libseccomp.

Debian and its kin always have the library, as apt needs it. Only this module uses it, to make a program from
the names of system calls; `namespaces.filter_system_calls` installs the program without it.
"""

import ctypes
import errno
import os
from dataclasses import dataclass
from pathlib import Path

from serving.system.isolation import namespaces

LIBRARY = "libseccomp.so.2"
MACHINES = tuple(namespaces.SECCOMP)
"""Elsewhere clone(2) may have its arguments in another order."""
ACTIONS = Path("/proc/sys/kernel/seccomp/actions_avail")
"""Exists where the kernel has filters."""

# Most calls that Docker's default profile refuses (https://docs.docker.com/engine/security/seccomp/), and
# ptrace.
DENIED = (
    # Namespaces and mounts. In a user namespace of its own, a process has every capability.
    *(
        "unshare",
        "setns",
        "mount",
        "umount",
        "umount2",
        "pivot_root",
        "chroot",
        "mount_setattr",
        "move_mount",
    ),
    *("open_tree", "open_tree_attr", "fsopen", "fsconfig", "fsmount", "fspick", "open_by_handle_at"),
    # Other processes, also of one user, and the kernel's keys, which no namespace keeps apart.
    # pidfd_getfd takes the open files of a process, its sockets and locks.
    *("ptrace", "process_vm_readv", "process_vm_writev", "process_madvise", "pidfd_getfd", "kcmp"),
    *("add_key", "request_key", "keyctl"),
    # Memory of the machine's nodes. Libraries that place memory by node go on without, as they do in Docker.
    *("mbind", "set_mempolicy", "set_mempolicy_home_node", "get_mempolicy", "migrate_pages", "move_pages"),
    # Parts of the kernel with many flaws in the past, and no use here.
    *("bpf", "perf_event_open", "userfaultfd", "io_uring_setup", "io_uring_enter", "io_uring_register"),
    *("fanotify_init", "lookup_dcookie", "nfsservctl", "uselib", "vm86", "vm86old", "ioperm", "iopl"),
    # The machine as a whole.
    *("init_module", "finit_module", "delete_module", "create_module", "kexec_load", "kexec_file_load"),
    *("reboot", "swapon", "swapoff", "acct", "quotactl", "quotactl_fd", "syslog", "vhangup"),
    *("settimeofday", "clock_settime", "stime", "sethostname", "setdomainname"),
)
NUMBERS = {
    "pidfd_getfd": 438,
    "process_madvise": 440,
    "mount_setattr": 442,
    "quotactl_fd": 443,
    "set_mempolicy_home_node": 450,
    "open_tree_attr": 467,
}
"""System calls of `DENIED` that kernels have and older libraries do not know; alike on all `MACHINES`."""
PERSONALITY_BITS = (0x8, 0x20000)
"""Docker allows personality(2) with any of PER_LINUX32 and UNAME26, or with 0xffffffff, which only asks."""
CLONE_NAMESPACES = (0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000, 0x00020000)
"""Flags of clone(2) that make a namespace: cgroup, UTS, IPC, user, PID, network, mount."""
VSOCK = 40
"""Address family of sockets to the machine's hypervisor, which no namespace keeps apart; Docker denies it."""

# <seccomp.h>
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_BAD_ARCHITECTURE, _OPTIMIZE = 2, 8
_BINARY_TREE = 2
_EQUAL, _MASKED_EQUAL = 4, 7
_UNKNOWN = -1


class _ArgumentComparison(ctypes.Structure):
    """struct scmp_arg_cmp: a condition on an argument of the system call, numbered from 0.

    `_EQUAL` compares the argument with `first`; `_MASKED_EQUAL` its bits of the mask `first` with `second`.
    """

    _fields_ = (
        ("number", ctypes.c_uint),
        ("comparison", ctypes.c_int),
        ("first", ctypes.c_uint64),
        ("second", ctypes.c_uint64),
    )


@dataclass(frozen=True)
class SystemCallFilter:
    """A classic BPF program, or why there is none."""

    program: bytes
    missing: str = ""


def system_call_filter() -> SystemCallFilter:
    """Return the filter of this machine; takes about a millisecond."""
    program, missing = b"", _unsupported()
    if not missing:
        try:
            program = _build(ctypes.CDLL(LIBRARY))
        except OSError as error:
            missing = str(error)
    return SystemCallFilter(program, missing and f"system calls are not filtered: {missing}")


def _unsupported() -> str:
    """Return why this machine cannot have a filter; empty if it can."""
    machine = os.uname().machine
    if machine not in MACHINES:
        return f"not supported on {machine}"
    return "" if ACTIONS.exists() else "the kernel has no seccomp filters"


def _build(library: ctypes.CDLL) -> bytes:
    """Return the filter as a classic BPF program: all system calls are allowed but those denied here."""
    library.seccomp_init.restype = ctypes.c_void_p
    library.seccomp_syscall_resolve_name.argtypes = (ctypes.c_char_p,)
    context = ctypes.c_void_p(library.seccomp_init(ctypes.c_uint32(_ALLOW)))
    if not context:
        raise MemoryError("seccomp_init")
    try:
        no_call = ctypes.c_uint32(_ERRNO | errno.ENOSYS)
        # System calls of another architecture: 32-bit programs, and x32.
        _check(library.seccomp_attr_set(context, _BAD_ARCHITECTURE, no_call), "seccomp_attr_set")
        library.seccomp_attr_set(context, _OPTIMIZE, ctypes.c_uint32(_BINARY_TREE))  # since 2.5
        for name in DENIED:
            _deny(library, context, name, errno.EPERM)
        for flag in CLONE_NAMESPACES:
            _deny(library, context, "clone", errno.EPERM, _ArgumentComparison(0, _MASKED_EQUAL, flag, flag))
        for is_set, is_clear in _refused_personalities():
            both = _ArgumentComparison(0, _MASKED_EQUAL, is_set | is_clear, is_set)
            _deny(library, context, "personality", errno.EPERM, both)
        # The flags of clone3 are in memory, which a filter cannot read. The C library falls back to clone.
        _deny(library, context, "clone3", errno.ENOSYS)
        _deny(library, context, "socket", errno.EPERM, _ArgumentComparison(0, _EQUAL, VSOCK, 0))
        return _exported(library, context)
    finally:
        library.seccomp_release(context)


def _refused_personalities() -> list[tuple[int, int]]:
    """Return pairs of bits: a rule refuses each value in which the first bit is set and the second one clear.

    A rule can only refuse. The rules together must allow exactly the values without any bit other than
    `PERSONALITY_BITS`, and 0xffffffff. The other bits form a ring, whose pairs of neighbours refuse a value
    in which some of them are set and some are clear. A value in which all of them are set is refused by one
    more pair for each of `PERSONALITY_BITS`, unless all of these are set too.
    """
    others = [1 << bit for bit in range(32) if 1 << bit not in PERSONALITY_BITS]
    neighbours = zip(others, [*others[1:], others[0]], strict=True)
    return [*neighbours, *((others[0], bit) for bit in PERSONALITY_BITS)]


def _deny(
    library: ctypes.CDLL, context: ctypes.c_void_p, name: str, error: int, *arguments: _ArgumentComparison
) -> None:
    """Let a system call fail with this error; skip one without a known number, which the kernel lacks too."""
    number = library.seccomp_syscall_resolve_name(name.encode())
    if number == _UNKNOWN:
        number = NUMBERS.get(name, _UNKNOWN)
    if number == _UNKNOWN:
        return
    action = ctypes.c_uint32(_ERRNO | error)
    array = (_ArgumentComparison * len(arguments))(*arguments)
    _check(library.seccomp_rule_add_array(context, action, number, len(arguments), array), name)


def _exported(library: ctypes.CDLL, context: ctypes.c_void_p) -> bytes:
    """Return the filter as a classic BPF program."""
    fd = os.memfd_create("filter")
    try:
        _check(library.seccomp_export_bpf(context, fd), "seccomp_export_bpf")
        return os.pread(fd, os.fstat(fd).st_size, 0)
    finally:
        os.close(fd)


def _check(result: int, operation: str) -> None:
    if result != 0:
        raise OSError(-result, os.strerror(-result), operation)

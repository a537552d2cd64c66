"""Lets a process decide on each bind(2) of another process and its children: seccomp_unotify(2). Imports
little.

The observed process calls `install`; the other process receives and answers the notifications. It knows the
observed processes by their ids in its own PID namespace, and reads them by system calls alone, never by
their /proc.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import struct

from serving.system.io_vector import IoVector
from serving.system.isolation import namespaces

TYPE_CHECKING = False  # type checkers take it as true; `typing` costs memory in every container shim
if TYPE_CHECKING:
    from collections.abc import Mapping

# <asm/unistd.h>, by machine
BIND: Mapping[str, int] = {"x86_64": 49, "aarch64": 200}
_SOCKET = {"x86_64": 41, "aarch64": 198}
_TGKILL = {"x86_64": 234, "aarch64": 131}
_PROCESS_VM_READV = {"x86_64": 310, "aarch64": 270}
_PIDFD_GETFD = 438
# <linux/audit.h>
_ARCHITECTURE = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_IPPROTO_MPTCP = 262
# <linux/bpf_common.h>: BPF_LD | BPF_W | BPF_ABS, BPF_JMP | BPF_JEQ | BPF_K, BPF_RET | BPF_K
_LOAD, _IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_INSTRUCTION = struct.Struct("=HBBI")
"""struct sock_filter: code, jump if true, jump if false, operand."""
# <linux/seccomp.h>
_RET_ALLOW, _RET_USER_NOTIF, _RET_ERRNO = 0x7FFF0000, 0x7FC00000, 0x00050000
_NUMBER_OFFSET, _ARCHITECTURE_OFFSET, _PROTOCOL_OFFSET = 0, 4, 16 + 2 * 8
"""Offsets in struct seccomp_data; the protocol is the third argument of socket(2), whose low half is first
on these little-endian machines."""
_SPEC_ALLOW, _NEW_LISTENER, _WAIT_KILLABLE_RECV = 4, 8, 32
_NOTIF_RECV, _NOTIF_SEND = 0xC0502100, 0xC0182101
_NOTIFICATION = struct.Struct("=QIIiIQ6Q")
"""struct seccomp_notif: id, pid, flags, and struct seccomp_data: number, architecture, address, arguments."""
_RESPONSE = struct.Struct("=QqiI")
"""struct seccomp_notif_resp: id, result, error, flags."""
_FLAG_CONTINUE = 1
_PIDFD_THREAD = os.O_EXCL
"""<linux/pidfd.h>, since Linux 6.9."""
_MOST_TRIED_IDS = 32_768
"""How many ids below a thread's id are tried as the id of its process, on an older kernel."""

_libc = ctypes.CDLL(None, use_errno=True)


def _system_call(number: int, *arguments: object) -> int:
    result: int = _libc.syscall(ctypes.c_long(number), *arguments)
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), f"system call {number}")
    return result


class BindCall:
    """A call of bind(2) that waits for `respond`."""

    def __init__(self, notification: bytes | bytearray) -> None:
        """Parse a struct seccomp_notif, whose first three arguments are those of bind(2)."""
        self.id, self.thread, *_, descriptor, address, length, _, _, _ = _NOTIFICATION.unpack(notification)
        # bind(2) takes an int and a socklen_t, so the kernel ignores the high halves of the two registers.
        self.descriptor = ctypes.c_int(descriptor).value
        self._address, self._length = address, ctypes.c_uint(length).value

    def address(self) -> bytes:
        """Return the struct sockaddr of the call.

        Raises:
            OSError: the thread is gone, or has no such memory.
        """
        size = min(self._length, 128)  # sizeof(struct sockaddr_storage)
        buffer = ctypes.create_string_buffer(size)
        local = IoVector(ctypes.cast(buffer, ctypes.c_void_p), size)
        remote = IoVector(self._address, size)
        number = _PROCESS_VM_READV[os.uname().machine]
        read = _system_call(
            number,
            ctypes.c_int(self.thread),
            ctypes.byref(local),
            ctypes.c_ulong(1),
            ctypes.byref(remote),
            ctypes.c_ulong(1),
            ctypes.c_ulong(0),
        )
        return buffer.raw[:read]

    def open_socket(self) -> int:
        """Return a descriptor of this process for the open file of the call's descriptor.

        Raises:
            OSError: the thread is gone, or has no such descriptor.
        """
        thread = self._open_thread()
        try:
            return _system_call(
                _PIDFD_GETFD, ctypes.c_int(thread), ctypes.c_int(self.descriptor), ctypes.c_uint(0)
            )
        finally:
            os.close(thread)

    def _open_thread(self) -> int:
        """Return a pidfd of the thread, or of its process where the kernel has pidfds of processes alone."""
        try:
            return os.pidfd_open(self.thread, _PIDFD_THREAD)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
        number = _TGKILL[os.uname().machine]
        # A thread's id is mostly above that of its process. tgkill(2) with signal 0 tells whether two match.
        for process in range(self.thread, max(self.thread - _MOST_TRIED_IDS, 1), -1):
            try:
                _system_call(number, ctypes.c_int(process), ctypes.c_int(self.thread), ctypes.c_int(0))
            except ProcessLookupError:
                continue
            return os.pidfd_open(process)
        raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH), f"thread {self.thread}")


def check_receiver() -> None:
    """Check that this process can receive and answer notifications: that it may call pidfd_getfd(2).

    Linux 5.0 to 5.5 notifies, but lacks this call, and before 5.5 also `_FLAG_CONTINUE`. The observed process
    cannot check this in `install`: its filter of system calls denies pidfd_getfd.

    Raises:
        OSError: the kernel is older than 5.6, or a filter of system calls denies pidfd_getfd.
    """
    try:
        _system_call(_PIDFD_GETFD, ctypes.c_int(-1), ctypes.c_int(-1), ctypes.c_uint(0))
    except OSError as error:
        if error.errno != errno.EBADF:
            raise


def install() -> int:
    """Notify of each bind(2) of this thread and its children; return the descriptor of the notifications.

    Needs `PR_SET_NO_NEW_PRIVS`. socket(2) fails for MPTCP from then on: the observer may attach a packet
    filter to a socket that is bound, and MPTCP sockets take none. Programs that prefer MPTCP, such as Go's,
    use TCP then. Calls of another architecture are not notified: the kernel refuses their bind(2) to a kept
    port.

    Raises:
        OSError: the kernel is older than 5.0, or another process receives notifications of this one.
    """
    machine = os.uname().machine
    # A jump skips so many instructions: the second number if the values are equal, else the third.
    instructions = [
        (_LOAD, 0, 0, _ARCHITECTURE_OFFSET),
        (_IF_EQUAL, 0, 6, _ARCHITECTURE[machine]),  # another architecture: allow
        (_LOAD, 0, 0, _NUMBER_OFFSET),
        (_IF_EQUAL, 5, 0, BIND[machine]),  # bind: notify
        (_IF_EQUAL, 0, 3, _SOCKET[machine]),  # neither bind nor socket: allow
        (_LOAD, 0, 0, _PROTOCOL_OFFSET),
        (_IF_EQUAL, 0, 1, _IPPROTO_MPTCP),  # another protocol: allow
        (_RETURN, 0, 0, _RET_ERRNO | errno.EPROTONOSUPPORT),
        (_RETURN, 0, 0, _RET_ALLOW),
        (_RETURN, 0, 0, _RET_USER_NOTIF),
    ]
    program = b"".join(_INSTRUCTION.pack(*instruction) for instruction in instructions)
    flags = _NEW_LISTENER | _SPEC_ALLOW
    try:
        # A signal of Go's scheduler does not interrupt and repeat the call; before Linux 5.19 it may.
        return namespaces.add_filter(program, flags | _WAIT_KILLABLE_RECV)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
    return namespaces.add_filter(program, flags)


def receive(listener: int) -> BindCall | None:
    """Wait for the next call; None if its thread has ended meanwhile, or a signal came."""
    content = bytearray(_NOTIFICATION.size)
    try:
        fcntl.ioctl(listener, _NOTIF_RECV, content)
    except (FileNotFoundError, InterruptedError):
        return None
    return BindCall(content)


def respond(listener: int, call: BindCall, error: int | None) -> None:
    """End a call with an error number, 0 for success; None lets the kernel execute it."""
    flags = _FLAG_CONTINUE if error is None else 0
    try:
        fcntl.ioctl(listener, _NOTIF_SEND, _RESPONSE.pack(call.id, 0, -(error or 0), flags))
    except FileNotFoundError:
        return  # the thread has ended meanwhile

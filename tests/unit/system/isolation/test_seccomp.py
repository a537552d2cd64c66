import ctypes
import errno
import os
from pathlib import Path

import pytest

from serving.system.isolation import namespaces, seccomp

CLONE_NEWUSER = 0x10000000
libc = ctypes.CDLL(None, use_errno=True)

MISSING = seccomp.system_call_filter().missing
needs_filter = pytest.mark.skipif(bool(MISSING), reason=MISSING)


def under_filter(call: str, *arguments: object) -> int:
    """Return the errno of a call of the C library in a process with the filter."""
    program = seccomp.system_call_filter().program
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            namespaces.prctl(namespaces.PR_SET_NO_NEW_PRIVS, 1)
            namespaces.filter_system_calls(program)
            ctypes.set_errno(0)
            getattr(libc, call)(*arguments)
            os.write(writer, bytes([ctypes.get_errno()]))
        finally:
            os._exit(0)  # with an error the child would go on as a second session of tests
    os.close(writer)
    with os.fdopen(reader, "rb") as answer:
        result = answer.read()
    os.waitpid(pid, 0)
    return result[0]


@needs_filter
@pytest.mark.parametrize(
    ("call", "arguments"),
    [
        ("unshare", (CLONE_NEWUSER,)),
        ("setns", (-1, 0)),
        ("mount", (None, None, None, 0, None)),
        ("ptrace", (0, 0, 0, 0)),
        ("process_vm_readv", (0, None, 0, None, 0, 0)),
        ("socket", (seccomp.VSOCK, 1, 0)),
    ],
)
def test_dangerous_system_call_is_not_permitted(call: str, arguments: tuple[object, ...]) -> None:
    assert under_filter(call, *arguments) == errno.EPERM


def number_of(name: str) -> ctypes.c_long:
    return ctypes.c_long(ctypes.CDLL(seccomp.LIBRARY).seccomp_syscall_resolve_name(name.encode()))


@needs_filter
@pytest.mark.parametrize(
    "name",
    [
        "pidfd_getfd",
        "process_madvise",
        "mbind",
        "set_mempolicy",
        "get_mempolicy",
        "migrate_pages",
        "move_pages",
    ],
)
def test_system_call_that_docker_refuses_is_not_permitted(name: str) -> None:
    assert under_filter("syscall", number_of(name), -1, -1, -1, -1, -1, -1) == errno.EPERM


@needs_filter
@pytest.mark.parametrize("name", seccomp.NUMBERS)
def test_system_call_that_the_library_does_not_know_is_refused_by_its_number(name: str) -> None:
    known = number_of(name).value
    assert known in (seccomp.NUMBERS[name], -1)
    number = ctypes.c_long(seccomp.NUMBERS[name])
    assert under_filter("syscall", number, -1, -1, -1, -1, -1, -1) == errno.EPERM


@needs_filter
@pytest.mark.parametrize("persona", [0, 0x8, 0x20000, 0x20008, 0xFFFFFFFF])
def test_persona_that_docker_allows_is_permitted(persona: int) -> None:
    assert under_filter("personality", ctypes.c_ulong(persona)) == 0


@needs_filter
@pytest.mark.parametrize(
    "persona",
    [
        *(1 << bit for bit in range(32) if bit not in (3, 17)),
        *(0xFFFFFFFF & ~(1 << bit) for bit in range(32)),
        *(0x80040000, 0x60008, 0x6000A, 0xFFFDFFF7),
    ],
)
def test_persona_without_random_addresses_or_of_another_system_is_not_permitted(persona: int) -> None:
    assert under_filter("personality", ctypes.c_ulong(persona)) == errno.EPERM


@needs_filter
def test_persona_is_refused_with_every_upper_half() -> None:
    assert under_filter("personality", ctypes.c_ulong(0x1_0004_0000)) == errno.EPERM


@needs_filter
@pytest.mark.parametrize(
    ("call", "arguments", "expected"),
    [
        ("getpid", (), 0),
        ("socket", (1, 1, 0), 0),
        ("sched_yield", (), 0),
        ("madvise", (None, 0, 0), 0),
        ("close", (-1,), errno.EBADF),
    ],
)
def test_ordinary_system_call_is_permitted(call: str, arguments: tuple[object, ...], expected: int) -> None:
    assert under_filter(call, *arguments) == expected


def test_filter_is_missing_with_its_reason_when_the_library_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seccomp, "LIBRARY", "libnone.so.9")
    without = seccomp.system_call_filter()
    assert without.program == b""
    assert without.missing.startswith("system calls are not filtered: libnone.so.9: cannot open")


def test_filter_is_missing_when_the_kernel_or_the_machine_has_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(seccomp, "ACTIONS", tmp_path / "none")
    assert "the kernel has no seccomp" in seccomp.system_call_filter().missing
    monkeypatch.setattr(seccomp, "MACHINES", ("other",))
    assert "not supported on" in seccomp.system_call_filter().missing

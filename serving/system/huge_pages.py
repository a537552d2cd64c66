"""Huge pages (2 MiB) for the code of a program and the heap of a process, independent of sysfs settings.

The processor caches the physical addresses of some two thousand pages (the TLB). A program whose code and
data lie on more pages of 4 KiB waits for address look-ups (docs/decisions/envoy-huge-pages.md). Nothing here
decides which process gets huge pages.
"""

import ctypes
import errno
import mmap
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from serving.system.io_vector import IoVector

HUGE = 2 * 1024 * 1024
"""Bytes of a huge page, where small ones have 4 KiB."""
# <linux/mman.h>, <linux/memfd.h>, <asm/unistd.h>
_MADV_COLLAPSE = 25
_MFD_EXEC = 0x10
_PROCESS_MADVISE = 440
_MAP_FIXED = 0x10
_PROT_NONE = 0
# <elf.h>: a 64-bit little-endian file; byte offsets in its header, and an entry of its table of segments
_MAGIC = b"\x7fELF\x02\x01"
_HEADER_BYTES = 64
_TABLE_OFFSET, _SECTIONS_OFFSET, _TABLE_ENTRY_BYTES, _TABLE_ENTRIES, _SECTION_COUNTS = 32, 40, 54, 56, 58
_SEGMENT = struct.Struct("<IIQQQQQQ")
_PT_LOAD, _PF_W = 1, 2
_MAX_OFFSET = 1 << 40
"""Above the offsets and addresses of any program."""
_PAGEMAP_BYTES = 8
"""Bytes of an entry of /proc/PID/pagemap, one for each small page."""
_PRESENT = 0x80
"""Bit 63 of such an entry, in its last byte: the page is in memory."""

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *(ctypes.c_int,) * 3, ctypes.c_long)
_libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


class _Segment(NamedTuple):
    """An entry of a program's table of segments (`Elf64_Phdr`)."""

    kind: int
    flags: int
    offset: int
    address: int
    physical: int
    file_bytes: int
    memory_bytes: int
    alignment: int


def program(path: str) -> int:
    """Return a descriptor of a copy of a program in memory, whose code and constants lie in huge pages.

    In the copy, a byte's file offset is its address less the first address, which is a multiple of `HUGE`, so
    that the kernel can map each huge page of the file as one.

    The copy can be executed as `/proc/self/fd/N`. It takes the program's size of memory while a descriptor is
    open or a process executes it. Sections, which only debuggers read, are left out.

    Raises:
        OSError: the kernel has no huge pages for files in memory or does not execute them, or the file is no
            program that can be moved.
    """
    if huge_bytes() != HUGE:
        raise OSError(errno.EOPNOTSUPP, f"the machine has no pages of {HUGE} bytes")
    with open(path, "rb", buffering=0) as source:  # noqa: PTH123 unbuffered
        table_offset, segments = _segments(source.read(_HEADER_BYTES), source.fileno())
        loads = [segment for segment in segments if segment.kind == _PT_LOAD]
        first_address = loads[0].address
        size = _round_up(max(load.address + load.file_bytes for load in loads) - first_address)
        writable = _memory_file(Path(path).name, size)
        try:
            with _mapped(writable, size) as (address, view):
                _collapse_constants(address, loads)
                for load in loads:
                    start = load.address - first_address
                    content = view[start : start + load.file_bytes]
                    if os.preadv(source.fileno(), [content], load.offset) != load.file_bytes:
                        raise _not_moved()
                for index, segment in enumerate(segments):
                    is_load = segment.kind == _PT_LOAD
                    moved = segment._replace(
                        # A segment without content, such as PT_GNU_STACK, can have the address 0.
                        offset=max(0, segment.address - first_address),
                        alignment=HUGE if is_load else segment.alignment,
                    )
                    _SEGMENT.pack_into(view, table_offset + index * _SEGMENT.size, *moved)
                struct.pack_into("<Q", view, _SECTIONS_OFFSET, 0)
                struct.pack_into("<HHH", view, _SECTION_COUNTS, 0, 0, 0)
            copy_path = f"/proc/self/fd/{writable}"
            if not os.access(copy_path, os.X_OK):
                raise OSError(errno.EACCES, "the kernel does not execute files in memory (vm.memfd_noexec)")
            # A new descriptor, as a file that is open for writing cannot be executed.
            return os.open(copy_path, os.O_RDONLY | os.O_CLOEXEC)
        finally:
            os.close(writable)


def huge_bytes() -> int:
    """Return the bytes of one of the kernel's huge pages; 0 if the kernel has none."""
    try:
        return int(Path("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size").read_text())
    except (OSError, ValueError):
        return 0


def _round_up(number: int) -> int:
    """Return the next multiple of `HUGE`, for a size or an address in bytes."""
    return -(-number // HUGE) * HUGE


def _segments(header: bytes, source: int) -> tuple[int, list[_Segment]]:
    """Return the byte offset of a program's table of segments, and the table.

    Args:
        header: the first `_HEADER_BYTES` of the program's file.
        source: a descriptor of the file.

    Raises:
        OSError: the file is not a program, or `program` cannot move its segments.
    """
    if len(header) < _HEADER_BYTES or not header.startswith(_MAGIC):
        raise _not_moved()
    (offset,) = struct.unpack_from("<Q", header, _TABLE_OFFSET)
    entry_bytes, entries = struct.unpack_from("<HH", header, _TABLE_ENTRY_BYTES)
    table = os.pread(source, entries * _SEGMENT.size, min(offset, _MAX_OFFSET))
    if entry_bytes != _SEGMENT.size or len(table) != entries * _SEGMENT.size:
        raise _not_moved()
    segments = [_Segment._make(entry) for entry in _SEGMENT.iter_unpack(table)]
    loads = [segment for segment in segments if segment.kind == _PT_LOAD]
    # The first segment has the header and the table, so that the copy has both at the same offsets.
    if not loads or loads[0].offset or loads[0].address % HUGE:
        raise _not_moved()
    if offset + len(table) > loads[0].file_bytes:
        raise _not_moved()
    # Segments are in the order of their addresses, and no two share a page, as each has its own permissions.
    for before, after in zip(loads, [*loads[1:], None], strict=True):
        end = before.address + max(before.memory_bytes, before.file_bytes)
        limit = after.address // mmap.PAGESIZE * mmap.PAGESIZE if after is not None else _MAX_OFFSET
        if end > limit or before.offset > _MAX_OFFSET:
            raise _not_moved()
    return offset, segments


def _not_moved() -> OSError:
    return OSError(errno.ENOEXEC, "not a program whose segments can be moved")


def _memory_file(name: str, size: int) -> int:
    """Return a descriptor of a new executable file in memory, of `size` zero bytes."""
    try:
        file = os.memfd_create(name, os.MFD_CLOEXEC | _MFD_EXEC)
    except OSError as error:
        if error.errno != errno.EINVAL:  # Linux before 6.3: every such file can be executed
            raise
        file = os.memfd_create(name, os.MFD_CLOEXEC)
    os.ftruncate(file, size)
    return file


@contextmanager
def _mapped(file: int, size: int) -> Iterator[tuple[int, memoryview]]:
    """Map a file at an address that is a multiple of `HUGE`; yield the address and the content."""
    reserved = _libc.mmap(None, size + HUGE, _PROT_NONE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
    _check(reserved != ctypes.c_void_p(-1).value)
    try:
        address = _round_up(reserved)
        access = mmap.PROT_READ | mmap.PROT_WRITE
        mapped = _libc.mmap(address, size, access, mmap.MAP_SHARED | _MAP_FIXED, file, 0)
        _check(mapped == address)
        content = (ctypes.c_char * size).from_address(address)
        with memoryview(content).cast("B") as view:
            yield address, view
    finally:
        _libc.munmap(reserved, size + HUGE)


def _check(succeeded: bool) -> None:  # noqa: FBT001 the result of a call
    if not succeeded:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _collapse_constants(address: int, loads: list[_Segment]) -> None:
    """Take huge pages for the segments that are not written, before their content is there.

    Args:
        address: where the copy is mapped, a multiple of `HUGE`.
        loads: the program's segments that are loaded.

    Raises:
        OSError: the kernel gave none.
    """
    taken, first_address = 0, loads[0].address
    for load in loads:
        if load.flags & _PF_W:
            continue
        start = load.address - first_address
        end = start + load.file_bytes
        for offset in range(_round_up(start), end - HUGE + 1, HUGE):
            ctypes.memset(address + offset, 0, 1)  # a range without any page has nothing to collapse
            if _libc.madvise(address + offset, HUGE, _MADV_COLLAPSE) == 0:
                taken += 1
    if not taken:
        raise OSError(errno.EOPNOTSUPP, "the kernel gave no huge page for the program's code")


def heap_regions(pid: int) -> list[int]:
    """Return the addresses of the regions of a process's anonymous memory that are worth a huge page.

    A region has `HUGE` bytes. At least half of its small pages are in use, so that a huge page at most
    doubles its memory.

    Raises:
        OSError: the process has ended, or is another user's.
    """
    regions = []
    with (
        open(f"/proc/{pid}/maps") as maps,  # noqa: PTH123 /proc
        open(f"/proc/{pid}/pagemap", "rb", buffering=0) as pages,  # noqa: PTH123
    ):
        for line in maps:
            # Most anonymous memory has no name, the last field.
            extent, access, *_, inode, name = (*line.split(maxsplit=5), "")[:6]
            if not access.startswith("rw") or inode != "0" or name.startswith("[stack"):
                continue
            start, end = (int(bound, 16) for bound in extent.split("-"))
            regions += [
                address
                for address in range(_round_up(start), end - HUGE + 1, HUGE)
                if _used_pages(pages.fileno(), address) >= HUGE // mmap.PAGESIZE // 2
            ]
    return regions


def _used_pages(pagemap: int, address: int) -> int:
    """Return how many small pages of the region at `address` are in memory.

    Args:
        pagemap: a descriptor of the process's /proc/PID/pagemap.
        address: of the region, a multiple of `HUGE`.
    """
    entries = os.pread(
        pagemap, HUGE // mmap.PAGESIZE * _PAGEMAP_BYTES, address // mmap.PAGESIZE * _PAGEMAP_BYTES
    )
    return sum(last >= _PRESENT for last in entries[_PAGEMAP_BYTES - 1 :: _PAGEMAP_BYTES])


def collapse(pidfd: int, address: int) -> None:
    """Replace the small pages of one region of a process by a huge page, while the process runs.

    Raises:
        OSError: this process lacks CAP_SYS_NICE (EPERM), the kernel is older than 6.1 or lacks huge pages, or
            it has no free huge page.
    """
    vector = IoVector(address, HUGE)
    result = _libc.syscall(
        ctypes.c_long(_PROCESS_MADVISE),
        pidfd,
        ctypes.byref(vector),
        ctypes.c_ulong(1),
        _MADV_COLLAPSE,
        0,
    )
    _check(result == HUGE)

"""Child processes and file descriptors of this process, to find those that a test leaves behind."""

from pathlib import Path


def snapshot() -> set[str]:
    """Return the children, zombies included, and the descriptors; none where /proc is missing."""
    return {f"process {pid}" for pid in _children()} | set(_descriptors())


def since(before: set[str]) -> list[str]:
    """Return the children and descriptors that were not there before."""
    return sorted(_with_command(name) for name in snapshot() - before)


def _with_command(name: str) -> str:
    pid = name.removeprefix("process ")
    try:
        return f"{name}: {Path(f'/proc/{pid}/cmdline').read_text().replace(chr(0), ' ').strip() or 'zombie'}"
    except OSError:
        return name


def _children() -> set[str]:
    """Return the process ids; read again if a thread has ended, as another one inherits its children."""
    while True:
        try:
            return {
                pid for path in Path("/proc/self/task").glob("*/children") for pid in path.read_text().split()
            }
        except (FileNotFoundError, ProcessLookupError):
            continue


def _descriptors() -> list[str]:
    names = []
    for path in Path("/proc/self/fd").glob("*"):
        try:
            names.append(f"descriptor {path.name}: {path.readlink()}")
        except OSError:  # the one that lists the directory is closed
            continue
    return names

"""Loopback addresses of this test process alone, so that suites side by side never want the same port."""

import os


def own(number: int) -> str:
    """Return the n-th address (0 to 99) that belongs to this process."""
    pid = os.getpid()
    return f"127.{100 + number}.{pid >> 8 & 255}.{pid & 255}"

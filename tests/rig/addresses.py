"""Loopback addresses of this test process and its children; concurrent suites share no port."""

import os


def own(number: int) -> str:
    """Return the n-th address (0 to 99) that belongs to this test process."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "main")
    owner = int(os.environ.setdefault(f"SLIPWAY_TEST_OWNER_{worker}", str(os.getpid())))
    return f"127.{100 + number}.{owner >> 8 & 255}.{owner & 255}"

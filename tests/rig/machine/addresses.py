"""Loopback addresses of a worker, a test process and its children; concurrent suites share none."""

import os

WORKER = "SLIPWAY_TEST_WORKER"
"""Environment variable: the number of this worker; unset in a session without workers."""


def own(number: int) -> str:
    """Return the n-th address (0 to 99) of this worker, or of all workers where a module's constant has it.

    Workers share the constants of modules, as these are imported before the fork: a number belongs to one
    file.
    """
    worker = os.environ.get(WORKER, "main")
    owner = int(os.environ.setdefault(f"SLIPWAY_TEST_OWNER_{worker}", str(os.getpid())))
    return f"127.{100 + number}.{owner >> 8 & 255}.{owner & 255}"

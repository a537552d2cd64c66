"""Loopback addresses of a worker, a test process and its children; concurrent suites share none."""

import os

WORKER = "SLIPWAY_TEST_WORKER"
"""Environment variable: the number of this worker; unset in a session without workers."""


def own(number: int) -> str:
    """Return loopback address `number` (0 to 127), which no concurrent worker or suite uses.

    A module's constant is computed before the workers fork, so all workers share it: use each number in one
    file only.
    """
    worker = os.environ.get(WORKER, "main")
    owner_pid = int(os.environ.setdefault(f"SLIPWAY_TEST_OWNER_{worker}", str(os.getpid())))
    return f"127.{100 + number}.{owner_pid >> 8 & 255}.{owner_pid & 255}"

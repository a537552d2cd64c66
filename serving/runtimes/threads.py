"""Limits the threads of numeric libraries. Must run before NumPy is imported, as they read the limit once.

The limit is one thread, or the container's CPU limit: OpenBLAS would start one thread per core of the
machine, each of which spins while it has no work.
"""

import functools
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from serving.runtimes import cgroups

VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")


def limit_threads(root: Path = cgroups.ROOT, self_cgroup: Path = cgroups.SELF) -> int:
    """Set the variables that are not set; return the number of threads.

    The number is the CPU limit in whole cores, rounded down, and at least 1.
    """
    count = max(1, int(cgroups.cpu_limit(root, self_cgroup) or 1))
    for name in VARIABLES:
        os.environ.setdefault(name, str(count))
    return count


def raise_threads(environment: Mapping[str, str]) -> None:
    """Raise the limits of the loaded libraries to those of the environment.

    The parent of a fork loaded the libraries, with the limit of its own environment: one thread.
    """
    openmp, blas = (_count(environment, name) for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"))
    _limit_loaded({"openmp": openmp, "blas": blas})
    if (torch := sys.modules.get("torch")) and openmp > 1:
        torch.set_num_threads(openmp)


def raise_openmp(environment: Mapping[str, str]) -> None:
    """Raise OpenMP's limit of the calling thread to that of the environment; called first in a new thread.

    OpenMP has a limit for each thread. A new thread begins with the limit that OpenMP read when loaded.
    """
    _limit_loaded({"openmp": _count(environment, "OMP_NUM_THREADS")})


@functools.cache
def loaded() -> Any:
    """Return the controller of the loaded numeric libraries; called before forks, as it takes 10 ms once."""
    import threadpoolctl  # noqa: PLC0415 a runtime's module imports little

    return threadpoolctl.ThreadpoolController()


def _limit_loaded(limits: Mapping[str, int]) -> None:
    """Apply limits, by kind of library; limits of 1 need no call, as libraries are then loaded with them."""
    if set(limits.values()) != {1}:
        loaded().limit(limits=dict(limits))  # for good, as it is not used in a `with` statement


def _count(environment: Mapping[str, str], name: str) -> int:
    """Return the number of threads that a variable has; 1 where it has none."""
    value = environment.get(name, "")
    return int(value) if value.isascii() and value.isdigit() and int(value) else 1

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
    """Set the variables that are not set; return the number of threads."""
    count = max(1, int(cgroups.cpu_limit(root, self_cgroup) or 1))
    for name in VARIABLES:
        os.environ.setdefault(name, str(count))
    return count


def raise_threads(environment: Mapping[str, str]) -> None:
    """Apply the limit of the environment to loaded libraries.

    After a fork they have the limit of the parent, one thread, which they read when they were loaded.
    """
    openmp, blas = (_count(environment, name) for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"))
    _limit_loaded({"openmp": openmp, "blas": blas})
    if (torch := sys.modules.get("torch")) and openmp > 1:
        torch.set_num_threads(openmp)


def raise_openmp(environment: Mapping[str, str]) -> None:
    """Apply the limit to a new thread: OpenMP has one per thread, which begins with the limit at loading."""
    _limit_loaded({"openmp": _count(environment, "OMP_NUM_THREADS")})


@functools.cache
def loaded() -> Any:
    """Find the numeric libraries of this process; called before forks, as it takes 10 ms."""
    import threadpoolctl  # noqa: PLC0415 a runtime's module imports little

    return threadpoolctl.ThreadpoolController()


def _limit_loaded(limits: Mapping[str, int]) -> None:
    if set(limits.values()) != {1}:
        loaded().limit(limits=dict(limits))


def _count(environment: Mapping[str, str], name: str) -> int:
    value = environment.get(name, "")
    return int(value) if value.isdigit() and int(value) else 1

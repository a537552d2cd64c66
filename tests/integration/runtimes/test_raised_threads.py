"""Numeric libraries that were loaded with one thread compute with more threads in a fork."""

import json
import os
import subprocess
import sys

import pytest

from tests.rig.servers.runtime_process import ROOT

SCRIPT = """
import json, os, sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
import numpy as np
import threadpoolctl
import sklearn.ensemble
if sys.argv[1] == "torch":
    import torch
from serving.runtimes import threads

def computing():
    "Number of threads that multiply; the first call lets threads of other libraries spin and fall asleep."
    multiply()
    before = used()
    multiply()
    spent = [ticks - before.get(task, 0) for task, ticks in used().items()]
    return sum(ticks > max(spent) / 4 for ticks in spent)

def multiply():
    big = torch.ones(1200, 1200) if sys.argv[1] == "torch" else np.ones((1200, 1200))
    for _ in range(8):
        big @ big

def used():
    "CPU time by thread, in ticks (proc(5), stat's fields 14 and 15)."
    tasks = Path("/proc/self/task").iterdir()
    stats = {path.name: (path / "stat").read_text().rpartition(")")[2].split() for path in tasks}
    return {task: int(fields[11]) + int(fields[12]) for task, fields in stats.items()}

before_fork = computing()
if os.fork() == 0:
    threads.raise_threads({"OMP_NUM_THREADS": "2", "OPENBLAS_NUM_THREADS": "2"})
    with ThreadPoolExecutor(1, "model", threads.raise_openmp, ({"OMP_NUM_THREADS": "2"},)) as worker:
        pools = worker.submit(threadpoolctl.threadpool_info).result()
    print(json.dumps([before_fork, computing(), sorted({pool["num_threads"] for pool in pools})]), flush=True)
    os._exit(0)
os.wait()
"""


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_a_fork_and_its_worker_compute_with_the_raised_threads(library: str) -> None:
    if library == "torch":
        pytest.importorskip("torch", reason="PyTorch is not installed (pip install 'slipway[torch]')")
    single = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    completed = subprocess.run(
        [sys.executable, "-c", SCRIPT, library],
        cwd=ROOT,
        env={**os.environ, **single},
        capture_output=True,
        check=True,
    )
    assert json.loads(completed.stdout) == [1, 2, [2]]

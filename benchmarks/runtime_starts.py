"""Phases of a start of each runtime: in a new process, and forked from a process that has imported it.

The measurement behind benchmarks/results/cold-start.md. No node, gateway or API: `cold_start.py` measures
what a user waits for. Starts alternate; the model's files and the imports are in the page cache.
"""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import httpx
from rig import cold_models
from rig.data_plane.proxies import free_port
from rig.harness import interval, process_seconds, report

from serving import clock
from serving.embedded.kubelet.runtimes import RUNTIMES
from serving.images.building.model_image import build_image
from serving.images.store import disk
from serving.images.store.model_store import ModelStore
from serving.resources.formats import file_list
from serving.resources.names import RUNTIME_IMAGE_PREFIX, STARTED_HEADER

Start = dict[str, float]


def environment(tree: Path, digest: str, port: int) -> dict[str, str]:
    return {
        **os.environ,
        "SLIPWAY_MODEL_NAME": "m",
        "SLIPWAY_MODEL_VERSION": "v",
        "SLIPWAY_MODEL_DIR": str(tree / "models"),
        "SLIPWAY_MODEL_DIGEST": digest,
        "SLIPWAY_MODEL_FILES_DIGEST": disk.file_digest(tree / file_list.NAME),
        "SLIPWAY_MODEL_SEALED": digest,
        "PORT": str(port),
    }


def start_of(port: int, pid: int, since: float, spawned: float) -> Start:
    """Wait until the runtime is ready; return its phases and the total, in milliseconds.

    Args:
        port: of the runtime.
        pid: its process.
        since: when it was requested, in monotonic seconds.
        spawned: the same in Unix seconds.
    """
    with httpx.Client(base_url=f"http://127.0.0.1:{port}") as client:
        while True:
            try:
                answer = client.get("/v2/health/ready")
            except httpx.TransportError:
                continue
            break
    totals = {"total": 1000 * (clock.monotonic() - since), "cpu": 1000 * process_seconds(pid)}
    phases = re.findall(r"(\w+);dur=([0-9.]+)", answer.headers["server-timing"])
    totals["spawn"] = 1000 * (float(answer.headers[STARTED_HEADER]) - spawned)
    os.kill(pid, signal.SIGKILL)
    return totals | {name: float(ms) for name, ms in phases}


def new_process(module: str, tree: Path, digest: str) -> Start:
    port = free_port()
    since, spawned = clock.monotonic(), clock.now().timestamp()
    command = [sys.executable, "-m", module]
    with subprocess.Popen(command, env=environment(tree, digest, port), stderr=subprocess.DEVNULL) as process:
        return start_of(port, process.pid, since, spawned)


def fork(template: subprocess.Popen[str], tree: Path, digest: str) -> Start:
    port = free_port()
    since, spawned = clock.monotonic(), clock.now().timestamp()
    print(json.dumps(environment(tree, digest, port)), file=template.stdin, flush=True)
    assert template.stdout is not None
    return start_of(port, int(template.stdout.readline()), since, spawned)


def measure(trained: cold_models.Trained, folder: Path, starts: int) -> dict[str, object]:
    module = RUNTIMES[RUNTIME_IMAGE_PREFIX + trained.framework].module
    assert module is not None
    store = ModelStore(folder / "store")
    digest = build_image(trained.directory, store, repository="r", lineage={}).digest
    tree = store.tree(digest)
    script = Path(__file__).parent / "rig" / "template.py"
    with subprocess.Popen(
        [sys.executable, script, module],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=Path(__file__).parents[1],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
    ) as template:
        assert template.stdin is not None
        assert template.stdout is not None
        cost = json.loads(template.stdout.readline())
        starts_of_arm: dict[str, list[Start]] = {"newProcess": [], "fork": []}
        for _ in range(starts):
            starts_of_arm["newProcess"].append(new_process(module, tree, digest))
            starts_of_arm["fork"].append(fork(template, tree, digest))
        template.stdin.close()
    medians = {
        arm: {phase: interval([start[phase] for start in samples]) for phase in samples[0]}
        for arm, samples in starts_of_arm.items()
    }
    return {"framework": trained.framework, "modelBytes": trained.bytes, "template": cost, "ms": medians}


def main(*, quick: bool, starts: int) -> None:
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for n, make in enumerate(cold_models.available(quick=quick)):
            place = Path(folder) / str(n)
            results.append(measure(make(place / "out"), place, starts))
    report("runtime_starts", {"models": results}, [])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="scikit-learn alone")
    parser.add_argument("--starts", type=int, default=10, help="of each kind and model")
    options = parser.parse_args()
    main(quick=options.quick, starts=options.starts)

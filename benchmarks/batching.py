"""The effect of batching on throughput, latency and CPU time, with one user and with many.

The measurement behind docs/decisions/batching.md. Runtimes run without gateway or node; a request has one
row, and each user sends the next request after the answer. All arms of a model run at once on one core and
are measured in turn, so ratios are within one run.
"""

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import orjson
from rig import cold_models, interrupts
from rig.data_plane import wrk
from rig.data_plane.proxies import PROXY_CORE, free_port, stop, wait_listening
from rig.harness import Bar, Interval, at_most, interval, process_seconds, report

from serving.embedded.kubelet.runtimes import RUNTIMES
from serving.images.building.model_image import build_image
from serving.images.store.model_store import ModelStore
from serving.resources.names import RUNTIME_IMAGE_PREFIX

USERS = (1, 32)
NONE, GATHERED, WAITING = "none", "32 rows", "32 rows, 2 ms"
ARMS: Mapping[str, Mapping[str, str]] = {
    NONE: {},
    GATHERED: {"SLIPWAY_BATCH_SIZE": "32"},
    WAITING: {"SLIPWAY_BATCH_SIZE": "32", "SLIPWAY_BATCH_TIMEOUT": "2ms"},
}
START_SECONDS = 120.0
"""PyTorch on a busy machine."""


@dataclass(frozen=True)
class RuntimeServer:
    pid: int
    url: str


@contextlib.contextmanager
def serving(trained: cold_models.Trained, folder: Path, arm: str) -> Iterator[RuntimeServer]:
    module = RUNTIMES[RUNTIME_IMAGE_PREFIX + trained.framework].module
    assert module is not None
    store = ModelStore(folder / "store")
    built = build_image(trained.directory, store, repository="r", lineage={})
    port = free_port()
    environment = {
        **os.environ,
        **ARMS[arm],
        "SLIPWAY_MODEL_NAME": "m",
        "SLIPWAY_MODEL_VERSION": "v",
        "PORT": str(port),
        "SLIPWAY_MODEL_DIR": str(store.tree(built.digest) / "models"),
        "SLIPWAY_MODEL_DIGEST": built.digest,
        "SLIPWAY_MODEL_FILES_DIGEST": built.files_digest,
    }
    command = ["taskset", "-c", PROXY_CORE, sys.executable, "-m", module]
    process = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
    try:
        wait_listening(port, process, START_SECONDS)
        yield RuntimeServer(process.pid, f"http://127.0.0.1:{port}/v2/models/m/infer")
    finally:
        stop(process)


async def window(
    server: RuntimeServer, folder: Path, body: str, users: int, seconds: float
) -> dict[str, float]:
    before = process_seconds(server.pid)
    seen = await wrk.load(folder, server.url, seconds, body=body, connections=users)
    spent = process_seconds(server.pid) - before
    return {**vars(seen), "cpuMs": 1000 * spent / max(1.0, seen.rate * seconds)}


async def measure(
    name: str, trained: cold_models.Trained, folder: Path, rounds: int, seconds: float
) -> dict[str, Any]:
    body = orjson.dumps(trained.request).decode()
    seen: dict[int, dict[str, list[dict[str, float]]]] = {u: {arm: [] for arm in ARMS} for u in USERS}
    with contextlib.ExitStack() as stack:
        servers = {arm: stack.enter_context(serving(trained, folder, arm)) for arm in ARMS}
        for server in servers.values():
            await window(server, folder, body, max(USERS), 1.0)  # warm
        for number in range(rounds):
            for users in USERS:
                for arm, server in servers.items():
                    seen[users][arm].append(await window(server, folder, body, users, seconds))
            print(f"{name}: round {number + 1} of {rounds}", file=sys.stderr, flush=True)
    return {str(users): summary(windows) for users, windows in seen.items()}


def summary(windows: Mapping[str, list[dict[str, float]]]) -> dict[str, Any]:
    """Return medians, and ratios by round to the arm without batching."""
    figures: dict[str, Any] = {}
    for arm, measured in windows.items():
        figures[arm] = {key: interval([window[key] for window in measured]) for key in measured[0]}
        pairs = list(zip(measured, windows[NONE], strict=True))
        figures[arm]["rateRatio"] = interval([window["rate"] / none["rate"] for window, none in pairs])
        figures[arm]["cpuRatio"] = interval(
            [window["cpuMs"] / max(none["cpuMs"], 1e-9) for window, none in pairs]
        )
    return figures


def models() -> dict[str, Callable[[Path], cold_models.Trained]]:
    trainers: dict[str, Callable[[Path], cold_models.Trained]] = {
        "digits, logistic regression": cold_models.sklearn,
        "digits, forest of 40 trees": partial(cold_models.sklearn, estimator="forest"),
    }
    if cold_models.torch in cold_models.available(quick=False):
        trainers["perceptron, 100 MB of weights"] = cold_models.torch
    return trainers


def bars(name: str, figures: Mapping[str, Any]) -> list[Bar]:
    many: Interval = figures["32"][GATHERED]["cpuRatio"]
    return [at_most(f"{name}: CPU time of an answer with 32 users, 32 rows / none", many, 0.6)]


async def main(*, quick: bool) -> None:
    if wrk.missing():
        sys.exit("wrk is not installed: apt-get install wrk")
    rounds, seconds = (3, 2.0) if quick else (10, 5.0)
    results, held = {}, []
    with tempfile.TemporaryDirectory(prefix="slipway-batching-") as root:
        for n, (name, make) in enumerate(models().items()):
            folder = Path(root) / str(n)
            results[name] = await measure(name, make(folder / "out"), folder, rounds, seconds)
            held += bars(name, results[name])
    report("batching", {"models": results}, held)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer and shorter windows")
    interrupts.run(main(quick=parser.parse_args().quick))

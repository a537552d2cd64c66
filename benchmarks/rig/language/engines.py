"""Servers of one checkpoint: our runtime, and `transformers serve`."""

import contextlib
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rig.data_plane.proxies import PROXY_CORE, free_port, stop
from rig.harness import ROOT
from serving import runtime_variables
from serving.images.building.model_image import build_image
from serving.images.store.model_store import ModelStore
from serving.settings import RuntimeSettings

OURS, SERVE, CONTINUOUS = "slipway", "transformers serve", "transformers serve, continuous"
OURS_WITHOUT_PREFIXES = "slipway, without prefixes"
START_SECONDS = 120.0
_CONTINUOUS = (
    "--continuous-batching",
    "--cb-block-size",
    "16",
    "--cb-num-blocks",
    "4096",
    "--cb-max-batch-tokens",
    "256",
)
"""Without sizes it takes most of the machine's memory, and 2 tokens per second."""
_CONTINUOUS_ON_GPU = ("--continuous-batching", "--cb-max-memory-percent", "0.4")
"""Its other sizes are for GPUs as they come; of the memory it would leave none to the other engines."""


@dataclass(frozen=True)
class RunningEngine:
    """A running server."""

    port: int
    model: str
    start_seconds: float
    """From the start of the process until it is ready."""


@contextlib.contextmanager
def engine(kind: str, checkpoint: Path, folder: Path, device: str = "cpu") -> Iterator[RunningEngine]:
    """Start a server on one core, or on the GPU and any cores; end it afterwards."""
    port = free_port()
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(ROOT)}
    if kind in (OURS, OURS_WITHOUT_PREFIXES):
        runtime = RuntimeSettings(prefix_cache=kind == OURS)
        store = ModelStore(folder / "store")
        built = build_image(checkpoint, store, repository="benchmark", lineage={})
        environment |= {
            "SLIPWAY_MODEL_NAME": "model",
            "SLIPWAY_MODEL_VERSION": "v1",
            "SLIPWAY_MODEL_DIR": str(store.tree(built.digest) / "models"),
            "SLIPWAY_MODEL_DIGEST": built.digest,
            "SLIPWAY_MODEL_FILES_DIGEST": built.files_digest,
            "SLIPWAY_DEVICE": device,
            "PORT": str(port),
            **runtime_variables.write(runtime),
        }
        command = [sys.executable, "-m", "serving.runtimes.transformers.server"]
        model, ready = "model", "/v2/health/ready"
    else:
        program = str(Path(sys.executable).parent / "transformers")
        continuous = _CONTINUOUS if device == "cpu" else _CONTINUOUS_ON_GPU
        options = continuous if kind == CONTINUOUS else ()
        command = [
            program,
            "serve",
            str(checkpoint),
            "--port",
            str(port),
            "--device",
            device,
            "--dtype",
            "float32" if device == "cpu" else "bfloat16",
        ]
        command += options
        model, ready = str(checkpoint), "/health"
    pinned = ("taskset", "-c", PROXY_CORE) if device == "cpu" else ()
    began = time.monotonic()
    log = folder / f"{kind.replace(' ', '-')}.log"
    with log.open("wb") as output:
        process = subprocess.Popen([*pinned, *command], env=environment, stdout=output, stderr=output)
    try:
        while not _answers(f"http://127.0.0.1:{port}{ready}"):
            if process.poll() is not None or time.monotonic() - began > START_SECONDS:
                raise RuntimeError(f"{kind} does not start:\n{log.read_text()[-2000:]}")
            time.sleep(0.05)
        yield RunningEngine(port, model, round(time.monotonic() - began, 2))
    finally:
        stop(process)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=1) as response:
            return bool(response.status == 200)
    except OSError:
        return False

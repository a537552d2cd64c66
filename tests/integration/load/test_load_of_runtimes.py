"""The load of trials against real replicas: the scikit-learn runtime and the tests' light replica."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from serving.images.building.model_image import build_image
from serving.images.store.model_store import ModelStore
from serving.resources.tuning.experiment import Constraint
from serving.resources.tuning.load import ExperimentLoad
from serving.training import digits
from tests.rig.machine import addresses
from tests.rig.machine.load_users import user_ids
from tests.rig.servers import runtime_process
from tuner.load import requests
from tuner.load.generator import Generator
from tuner.load.level_search import highest_load
from tuner.load.level_search.state import Finished, MeasureLevel, State
from tuner.load.windows import window_summary
from tuner.load.windows.samples import joined
from tuner.settings import LoadSettings

LIGHT = Path(__file__).parents[2] / "programs" / "light_replica.py"
HOST = addresses.own(74)


@pytest.fixture
def replica(tmp_path: Path) -> Iterator[str]:
    """Yield the URL of a ready scikit-learn runtime."""
    model, metrics = digits.train("logistic", seed=1)
    digits.write(model, metrics, tmp_path / "out")
    store = ModelStore(tmp_path / "store")
    built = build_image(tmp_path / "out", store, repository="slipway.local/default/digits", lineage={})
    command = ["-m", "serving.runtimes.sklearn.server"]
    models = store.tree(built.digest) / "models"
    server = runtime_process.start(command, built.digest, models, tmp_path / "log")
    runtime_process.wait_ready(server)
    yield f"http://{server.address}"
    server.process.kill()
    server.process.wait()


@pytest.fixture
def light(tmp_path: Path) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    (tmp_path / "label").write_text("3")
    environment = {
        "SLIPWAY_MODEL_DIR": str(tmp_path),
        "SLIPWAY_MODEL_VERSION": "v1",
        "HOST": HOST,
        "PORT": "8080",
    }
    process = subprocess.Popen([sys.executable, str(LIGHT)], env={**os.environ, **environment})
    url = f"http://{HOST}:8080"
    deadline = time.monotonic() + 20
    while True:
        try:
            read(f"{url}/v2/health/ready")
            break
        except OSError:
            assert time.monotonic() < deadline
            time.sleep(0.02)
    yield url, process
    process.kill()
    process.wait()


def read(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=1) as response:
        return bytes(response.read())


async def search(
    generator: Generator, load: ExperimentLoad, *constraints: Constraint
) -> tuple[State, Finished]:
    state, parts = highest_load.begin(load, constraints, LoadSettings()), []
    while isinstance(step := highest_load.next_step(state), MeasureLevel):
        if step.warmup:
            await generator.window(step.level, step.warmup)
        samples = await generator.window(step.level, step.seconds)
        parts = [*parts, samples] if step.extends else [samples]
        summary = window_summary.summary(joined(parts), constraints)
        state = highest_load.after(state, summary, extends=step.extends)
    return state, step


async def test_search_generates_requests_from_the_models_metadata(replica: str) -> None:
    description = json.loads(await asyncio.to_thread(read, f"{replica}/v2/models/digits"))
    load = ExperimentLoad(window_seconds=1, warmup_seconds=1, max_level="4")
    plan = requests.plan(load, description, "digits", parameters={"batch": "2"})
    async with Generator.start(replica, plan, LoadSettings(), user_ids=user_ids()) as generator:
        state, end = await search(generator, load, Constraint(metric="errorRate", at_most="5%"))
    assert sum(window.errors for window in state.windows) == 0
    assert end.reason == "Measured"
    assert end.result.throughput.value > 10
    assert "requests/s answered" in end.message


async def test_requests_fail_and_the_window_ends_when_the_replica_dies(
    light: tuple[str, subprocess.Popen[bytes]],
) -> None:
    url, process = light
    description = {"inputs": [{"name": "input", "datatype": "FP64", "shape": [-1, 64]}]}
    plan = requests.plan(ExperimentLoad(), description, "digits")
    async with Generator.start(url, plan, LoadSettings(), user_ids=user_ids()) as generator:
        alive = await generator.window(2, 0.4)
        process.send_signal(signal.SIGKILL)
        dead = await generator.window(2, 0.4)
    assert alive.ok.all()
    assert not dead.ok[-1]
    assert window_summary.meets(dead, [Constraint(metric="errorRate", at_most="1%")]) == "No"

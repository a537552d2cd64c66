"""Models of the cold-start benchmark, a request with its right answer, and the cost of warm models."""

import contextlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from serving.data_dir import DataDir
from serving.images.store.model_store import ModelStore

TORCH_HIDDEN = 5_000
"""Weights of 100 MB."""
ROW = [float(n % 17) for n in range(64)]
REQUEST = {"inputs": [{"name": "input", "shape": [1, 64], "datatype": "FP64", "data": ROW}]}
PREDICT = """
import sys, torch
folder, row = sys.argv[1], torch.tensor([eval(sys.argv[2])], dtype=torch.float64)
module = torch.export.load(f"{folder}/model.pt2").module()
module.load_state_dict(torch.load(f"{folder}/weights.pt", weights_only=True), assign=True)
print(int(module(row)["predict"][0]))
"""


@dataclass(frozen=True)
class Trained:
    framework: str
    directory: Path
    bytes: int
    expected: int
    """The digit that the model predicts for `REQUEST`."""

    @property
    def request(self) -> Mapping[str, Any]:
        return REQUEST

    def answer(self, body: Mapping[str, Any]) -> int:
        return int(next(o for o in body["outputs"] if o["name"] == "predict")["data"][0])


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    """Yield a directory that replicas may enter."""
    path = Path(tempfile.mkdtemp(prefix="slipway-bench-"))
    path.chmod(0o755)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def available(*, quick: bool) -> list[Callable[[Path], Trained]]:
    if quick:
        return [sklearn]
    if importlib.util.find_spec("torch") is None:
        print("PyTorch is not installed (pip install 'slipway[torch]'): left out", file=sys.stderr)
        return [sklearn]
    return [sklearn, torch]


def sklearn(directory: Path, estimator: str = "logistic") -> Trained:
    import joblib  # noqa: PLC0415 only one of the two is needed

    _train(directory, "serving.training.digits", "--estimator", estimator, "--seed", "1")
    model = joblib.load(directory / "model.joblib")
    return Trained("sklearn", directory, _size(directory), int(model.predict([ROW])[0]))


def torch(directory: Path) -> Trained:
    _train(directory, "serving.training.digits_torch", "--hidden", str(TORCH_HIDDEN), "--epochs", "1")
    # In a process of its own: PyTorch takes memory that this one does not need.
    process = subprocess.run(
        [sys.executable, "-c", PREDICT, str(directory), repr(ROW)], check=True, capture_output=True
    )
    return Trained("pytorch", directory, _size(directory), int(process.stdout))


def _train(directory: Path, module: str, *arguments: str) -> None:
    directory.mkdir(parents=True)
    environment = {**os.environ, "SLIPWAY_OUTPUT_DIR": str(directory)}
    subprocess.run(
        [sys.executable, "-m", module, *arguments], check=True, env=environment, stdout=subprocess.DEVNULL
    )


def _size(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


def cost(data: DataDir) -> dict[str, float]:
    """Return the MiB of the store on disk and of the zygotes (proportional set size, proc(5))."""
    sizes = [pss(pid) for pid in zygotes(data)]
    return {
        "storeMiB": round(ModelStore(data.models).size() / 2**20, 1),
        "zygotes": len(sizes),
        "zygotesPssMiB": round(sum(sizes), 1),
    }


def zygotes(data: DataDir) -> list[int]:
    records = sorted((data.root / "zygotes").glob("*.json"))
    return [int(orjson.loads(record.read_bytes())["pid"]) for record in records]


def pss(pid: int) -> float:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    raise ValueError(f"process {pid} has no Pss")

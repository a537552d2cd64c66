"""Replicas of one model hold its large arrays once between them, in the page cache."""

import json
import subprocess
import sys
from pathlib import Path

import joblib
import numpy as np
import pytest
from sklearn.linear_model import LinearRegression

from serving.images.building.model_image import build_image
from serving.images.store.model_store import ModelStore
from tests.rig.servers.runtime_process import ROOT

ROWS = 2048
BYTES = ROWS * 1024 * 8

SCRIPT = """
import json, os, sys
from importlib import import_module
from pathlib import Path
from serving.runtimes import loading

module, directory, digest, name = sys.argv[1:]
import numpy as np
framework = import_module(module)._framework()
wanted = loading.ModelFiles(("model.joblib", "model.pt2"), ("weights.pt",))

def replica(ready, go):
    files = loading.verify(Path(directory), digest, wanted, is_sealed=False)
    model = framework.warm(framework.load(files), files.output)
    files.close()
    os.write(ready, b"x")
    os.read(go, 1)

def held(pid):
    "KiB of a process's mappings of the file."
    kibibytes, counted = {}, False
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        key, *values = line.split()
        if not key.endswith(":"):
            counted = line.endswith("/" + name)
        elif counted and values[-1] == "kB":
            kibibytes[key] = kibibytes.get(key, 0) + int(values[0])
    return {key: kibibytes[key + ":"] for key in ("Rss", "Pss", "Private_Dirty")}

(ready_r, ready_w), (go_r, go_w) = os.pipe(), os.pipe()
replicas = []
for _ in range(2):
    replicas.append(os.fork())
    if replicas[-1] == 0:
        os.close(go_w)
        replica(ready_w, go_r)
        os._exit(0)
os.close(ready_w)
for _ in replicas:
    assert os.read(ready_r, 1) == b"x"
print(json.dumps([held(pid) for pid in replicas]))
os.close(go_w)
for _ in replicas:
    assert os.wait()[1] == 0
"""


def sklearn_model(out: Path) -> str:
    model = LinearRegression()
    model.n_features_in_ = 1024
    model.coef_, model.intercept_ = np.random.default_rng(1).random((ROWS, 1024)), np.zeros(ROWS)
    joblib.dump(model, out / "model.joblib")
    return "model.joblib"


def torch_model(out: Path) -> str:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed (pip install 'slipway[torch]')")
    from serving.runtimes.torch import files

    network = torch.nn.Linear(1024, ROWS, dtype=torch.float64)
    files.save(torch.export.export(network, (torch.zeros(1, 1024, dtype=torch.float64),)), out)
    return "weights.pt"


@pytest.mark.parametrize(
    ("module", "make"),
    [("serving.runtimes.sklearn.server", sklearn_model), ("serving.runtimes.torch.server", torch_model)],
)
def test_two_replicas_share_the_pages_of_their_weights(module: str, make: object, tmp_path: Path) -> None:
    assert callable(make)
    (tmp_path / "out").mkdir()
    name = make(tmp_path / "out")
    store = ModelStore(tmp_path / "store")
    built = build_image(tmp_path / "out", store, repository="r", lineage={})
    completed = subprocess.run(
        [sys.executable, "-c", SCRIPT, module, store.tree(built.digest) / "models", built.files_digest, name],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        check=True,
        timeout=60,
    )
    for memory in json.loads(completed.stdout):
        assert memory["Rss"] * 1024 > 0.95 * BYTES
        assert memory["Pss"] < 0.55 * memory["Rss"]
        assert memory["Private_Dirty"] < 64

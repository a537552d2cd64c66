"""Both runtimes forked from a process that has imported them, as the node's zygote does it."""

import json
import os
import re
import signal
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from serving.images.building.model_image import build_image
from serving.images.store.model_store import ModelStore
from tests.rig.servers import runtime_process
from tests.rig.servers.runtime_process import DEADLINE, Running, wait_ready

DOCUMENT = {"inputs": [{"name": "input", "datatype": "FP64", "shape": [1, 64], "data": [0.0] * 64}]}


def sklearn_model(out: Path) -> None:
    """An ensemble of estimators from many packages."""
    from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier, VotingClassifier
    from sklearn.gaussian_process import GaussianProcessClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.naive_bayes import GaussianNB
    from sklearn.neighbors import KNeighborsClassifier
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from sklearn.svm import SVC

    from serving.training import digits

    members = [
        make_pipeline(StandardScaler(), LogisticRegression(max_iter=20)),
        RandomForestClassifier(3),
        HistGradientBoostingClassifier(max_iter=2),
        KNeighborsClassifier(),
        SVC(),
        GaussianNB(),
        MLPClassifier(8, max_iter=5),
        GaussianProcessClassifier(max_iter_predict=5, optimizer=None),
    ]
    images, _, labels, _ = digits.split()
    voting = VotingClassifier([(str(i), member) for i, member in enumerate(members)])
    digits.write(voting.fit(images[:150], labels[:150]), {}, out)


def torch_model(out: Path) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed (pip install 'slipway[torch]')")
    from serving.training import digits_torch

    digits_torch.write(digits_torch.Classifier(32).eval(), {}, out)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    ("module", "make"),
    [("serving.runtimes.sklearn.server", sklearn_model), ("serving.runtimes.torch.server", torch_model)],
)
def test_a_fork_imports_nothing_and_has_its_own_threads_and_random_numbers(
    module: str, make: object, tmp_path: Path
) -> None:
    assert callable(make)
    make(tmp_path / "out")
    store = ModelStore(tmp_path / "store")
    digest = build_image(tmp_path / "out", store, repository="r", lineage={}).digest
    paths = [tmp_path / "report0", tmp_path / "report1"]
    server = runtime_process.start(
        ["-m", "tests.programs.minimal_zygote", module, *map(str, paths)],
        digest,
        store.tree(digest) / "models",
        tmp_path / "log",
        SLIPWAY_MODEL_SEALED=digest,
    )
    use_every_endpoint(server)
    use_every_endpoint(replace(server, port=server.port + 1))
    pid = server.process.pid
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        os.kill(int(child), signal.SIGTERM)
    assert server.process.wait(DEADLINE) == 0
    reports = [json.loads(path.read_text()) for path in paths]
    assert [report["code"] for report in reports] == [0, 0]
    assert [report["imported"] for report in reports] == [[], []]
    assert [report["preloaded"] for report in reports] == [1, 1]
    assert [set(report["pools"]) for report in reports] == [{1}, {2}]
    assert reports[0]["random"] != reports[1]["random"]


def use_every_endpoint(server: Running) -> None:
    """Call each endpoint once."""
    timing = wait_ready(server).headers["server-timing"]
    assert re.match(r"import;dur=\S+, verify;dur=\S+, load;dur=\S+, warmup;dur=", timing)
    with httpx.Client(base_url=f"http://{server.address}", verify=False) as client:
        assert client.post("/v2/models/digits/infer", json=DOCUMENT).status_code == 200
        assert client.post("/v2/models/digits/infer", content=b"x").status_code == 400
        assert client.get("/v2/models/digits", headers={"accept-encoding": "gzip"}).status_code == 200

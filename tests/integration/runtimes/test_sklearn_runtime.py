"""The scikit-learn runtime as a process: its start, refusals and stop."""

import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx
import pytest

from serving.images.building.model_image import Built, build_image
from serving.images.store import disk
from serving.images.store.model_store import ModelStore
from serving.settings import RuntimeSettings
from serving.training import digits
from tests.rig.servers import runtime_process
from tests.rig.servers.runtime_process import DEADLINE, Running, wait_ready


def start(built: Built, models: Path, log: Path, **changed: str) -> Running:
    command = ["-m", "serving.runtimes.sklearn.server"]
    return runtime_process.start(command, built.digest, models, log, **changed)


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> tuple[ModelStore, Built]:
    base = tmp_path_factory.mktemp("image")
    model, metrics = digits.train("logistic", seed=1)
    digits.write(model, metrics, base / "out")
    store = ModelStore(base / "store")
    return store, build_image(base / "out", store, repository="slipway.local/default/digits", lineage={})


@pytest.fixture
def running(image: tuple[ModelStore, Built], tmp_path: Path) -> Running:
    """Ready; ends before its test does."""
    store, built = image
    server = start(built, store.tree(built.digest) / "models", tmp_path / "log")
    wait_ready(server)
    return server


def test_sigterm_finishes_requests_in_flight_and_exits_0(running: Running) -> None:
    document = {"inputs": [{"name": "input", "datatype": "FP64", "shape": [1, 64], "data": [0.0] * 64}]}
    codes: list[int] = []
    failed: list[Exception] = []
    answered = threading.Event()

    def keep_asking() -> None:
        with httpx.Client(base_url=f"http://{running.address}", verify=False) as session:
            while True:
                try:
                    answer = session.post("/v2/models/digits/infer", json=document)
                except httpx.ConnectError:
                    return  # the listener is closed: a gateway takes another replica
                except httpx.TransportError as error:
                    failed.append(error)
                    return
                codes.append(answer.status_code)
                answered.set()
                if answer.headers.get("connection") == "close":
                    return

    callers = [threading.Thread(target=keep_asking) for _ in range(4)]
    for caller in callers:
        caller.start()
    assert answered.wait(20)
    running.process.send_signal(signal.SIGTERM)
    for caller in callers:
        caller.join(20)
    assert running.process.wait(20) == 0
    assert failed == []
    assert set(codes) == {200}


def test_readiness_fails_and_liveness_holds_while_stopping(running: Running) -> None:
    running.process.send_signal(signal.SIGTERM)
    answers: set[tuple[int, int, str]] = set()
    while running.process.poll() is None:
        try:
            ready = httpx.get(f"http://{running.address}/v2/health/ready", verify=False)
            live = httpx.get(f"http://{running.address}/v2/health/live", verify=False)
        except httpx.TransportError:
            break
        answers.add((ready.status_code, live.status_code, ready.headers.get("connection", "")))
        time.sleep(0.05)
    assert running.process.wait(20) == 0
    assert (503, 200, "close") in answers


def test_an_idle_connection_serves_until_its_client_closes_it(running: Running) -> None:
    """A gateway that does not know of the stop may send a request at any time."""
    settings = RuntimeSettings()
    with httpx.Client(base_url=f"http://{running.address}", verify=False) as session:
        assert "connection" not in session.get("/v2/health/live").headers
        running.process.send_signal(signal.SIGTERM)
        time.sleep(settings.linger_seconds + 0.2)
        assert session.get("/v2/health/live").headers["connection"] == "close"
    assert running.process.wait(settings.idle_seconds / 2) == 0


@pytest.fixture
def mounted(image: tuple[ModelStore, Built], tmp_path: Path) -> Path:
    """A writable copy of the image as the node mounts it."""
    store, built = image
    copy = tmp_path / "mnt"
    for source in store.tree(built.digest).rglob("*"):
        if source.is_file():
            target = copy / source.relative_to(store.tree(built.digest))
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(source.read_bytes())
    return copy


@pytest.mark.parametrize("how", ["pickle", "list", "extra", "missing", "digest", "link"])
def test_files_of_another_digest_are_refused_without_unpickling(
    how: str, image: tuple[ModelStore, Built], mounted: Path, tmp_path: Path
) -> None:
    _, built = image
    bomb = tmp_path / "exploded"
    model = mounted / "models" / "model.joblib"
    evil = b"cposix\nsystem\n(S'touch " + str(bomb).encode() + b"'\ntR."
    changed = {"SLIPWAY_MODEL_FILES_DIGEST": built.files_digest}
    if how == "pickle":
        model.write_bytes(evil)
    elif how == "list":
        model.write_bytes(evil)
        listing = mounted / "files.json"
        old = next(file.digest for file in built.files if file.path == "model.joblib")
        listing.write_text(listing.read_text().replace(old, disk.file_digest(model)))
    elif how == "extra":
        (mounted / "models" / "more.py").write_text("x")
    elif how == "missing":
        (mounted / "models" / "slipway.json").unlink()
    elif how == "link":
        model.rename(tmp_path / "elsewhere")
        model.symlink_to(tmp_path / "elsewhere")
    else:
        changed = {"SLIPWAY_MODEL_FILES_DIGEST": "sha256:" + "0" * 64}
    refused = start(built, mounted / "models", tmp_path / "log", **changed)
    assert refused.process.wait(DEADLINE) == 1
    assert refused.log.read_text().splitlines()[-1].startswith("DigestMismatch: ")
    assert not bomb.exists()


@pytest.mark.parametrize("variable", ["SLIPWAY_MODEL_DIGEST", "SLIPWAY_MODEL_FILES_DIGEST"])
def test_a_missing_variable_is_named_and_the_exit_code_is_2(
    variable: str, image: tuple[ModelStore, Built], tmp_path: Path
) -> None:
    store, built = image
    models = store.tree(built.digest) / "models"
    refused = start(built, models, tmp_path / "log", **{variable: ""})
    assert refused.process.wait(DEADLINE) == 2
    assert refused.log.read_text().splitlines()[-1] == f"InvalidEnvironment: {variable}: must be set"


def test_a_pickle_that_is_no_estimator_is_refused(tmp_path: Path) -> None:
    import joblib

    (tmp_path / "out").mkdir()
    joblib.dump({"not": "a model"}, tmp_path / "out" / "model.joblib")
    store = ModelStore(tmp_path / "store")
    built = build_image(tmp_path / "out", store, repository="r", lineage={})
    refused = start(built, store.tree(built.digest) / "models", tmp_path / "log")
    assert refused.process.wait(DEADLINE) == 1
    assert "UnsupportedModel: dict is not a scikit-learn estimator" in refused.log.read_text()


def test_the_torch_runtime_names_the_package_to_install_without_pytorch(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "model.pt2").write_bytes(b"program")
    store = ModelStore(tmp_path / "store")
    digest = build_image(out, store, repository="r", lineage={}).digest
    absent = (
        "import sys; sys.modules['torch'] = None; "
        "from serving.runtimes.torch.server import main; sys.exit(main())"
    )
    refused = runtime_process.start(["-c", absent], digest, store.tree(digest) / "models", tmp_path / "log")
    assert refused.process.wait(DEADLINE) == 1
    assert (
        "RuntimeMissing: PyTorch is not installed (pip install 'slipway[torch]')" in refused.log.read_text()
    )


def test_importing_a_runtime_imports_no_framework() -> None:
    script = (
        "import sys; import serving.runtimes.sklearn.server; import serving.runtimes.torch.server; "
        "print(*sys.modules)"
    )
    completed = subprocess.run(
        [sys.executable, "-c", script], cwd=runtime_process.ROOT, capture_output=True, check=True
    )
    assert not {b"numpy", b"torch", b"sklearn", b"uvicorn", b"uvloop", b"asyncio"} & set(
        completed.stdout.split()
    )

"""A runtime on what the layers of a pushed image unpack to: the files that a kubelet of a cluster mounts."""

import contextlib
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from serving.images.building.model_image import Built
from serving.images.registry import Reference, Registry, push
from serving.images.store import disk
from serving.images.store.model_store import ModelStore
from serving.training import digits
from tests.rig.servers import runtime_process
from tests.rig.servers.registry_server import RegistryServer
from tests.rig.servers.runtime_process import DEADLINE, Running, wait_ready


def run(*command: object) -> None:
    completed = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
    assert completed.returncode == 0, completed.stderr


@pytest.fixture
def trained(tmp_path: Path) -> Path:
    model, metrics = digits.train("logistic", seed=1)
    digits.write(model, metrics, tmp_path / "trained")
    return tmp_path / "trained"


@pytest.fixture
async def volume(
    shared_registry: RegistryServer, registry: Registry, store: ModelStore, built: Built, tmp_path: Path
) -> Path:
    """Pushed by us, copied by skopeo, unpacked by umoci."""
    for name in ("skopeo", "umoci"):
        if shutil.which(name) is None:
            pytest.skip(f"{name} is not installed (Debian package {name})")
    target = Reference.parse(f"{shared_registry.host}/mounted/{tmp_path.name.replace('_', '-')}:v1")
    await push(registry, store, built.digest, target)
    copied, bundle = tmp_path / "layout", tmp_path / "bundle"
    source = ("--src-tls-verify=false", f"docker://{target}")
    run("skopeo", "--insecure-policy", "copy", *source, f"oci:{copied}:v1")
    rootless = [] if os.geteuid() == 0 else ["--rootless"]
    run("umoci", "unpack", *rootless, "--image", f"{copied}:v1", bundle)
    return bundle / "rootfs"


@contextlib.contextmanager
def started(built: Built, volume: Path, log: Path) -> Iterator[Running]:
    """Run a server by the digests of the ModelVersion."""
    server = runtime_process.start(
        ["-m", "serving.runtimes.sklearn.server"],
        built.digest,
        volume / "models",
        log,
        SLIPWAY_MODEL_FILES_DIGEST=built.files_digest,
    )
    try:
        yield server
    finally:
        server.process.kill()
        server.process.wait()


def test_runtime_serves_from_the_unpacked_layers(built: Built, volume: Path, tmp_path: Path) -> None:
    assert sorted(path.name for path in volume.iterdir()) == ["files.json", "models"]
    with started(built, volume, tmp_path / "log") as server:
        wait_ready(server)


def test_runtime_serves_from_a_copy_of_the_unpacked_layers(
    built: Built, volume: Path, tmp_path: Path
) -> None:
    """As an init container makes one in an emptyDir."""
    run("cp", "-a", f"{volume}/.", tmp_path / "copy")
    with started(built, tmp_path / "copy", tmp_path / "log") as server:
        wait_ready(server)


def change_a_byte(volume: Path) -> str:
    path = volume / "models" / "model.joblib"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    return "DigestMismatch: model.joblib: must be sha256:"


def remove_a_file(volume: Path) -> str:
    (volume / "models" / "slipway.json").unlink()
    return "DigestMismatch: slipway.json: is missing"


def add_a_file(volume: Path) -> str:
    (volume / "models" / "more.py").touch()
    return "DigestMismatch: more.py: is not in files.json"


def change_the_list(volume: Path) -> str:
    """A list that fits the changed bytes."""
    change_a_byte(volume)
    listing = volume / "files.json"
    document = json.loads(listing.read_bytes())
    for file in document["files"]:
        file["digest"] = disk.file_digest(volume / "models" / file["path"])
    listing.write_text(json.dumps(document, sort_keys=True, separators=(",", ":")))
    return "DigestMismatch: files.json: must be the ModelVersion's sha256:"


def remove_the_list(volume: Path) -> str:
    (volume / "files.json").unlink()
    return "InvalidImage: files.json: is missing beside the model"


@pytest.mark.parametrize(
    "meddle", [change_a_byte, remove_a_file, add_a_file, change_the_list, remove_the_list]
)
def test_runtime_refuses_changed_layers(
    meddle: Callable[[Path], str], built: Built, volume: Path, tmp_path: Path
) -> None:
    expected = meddle(volume)
    with started(built, volume, tmp_path / "log") as refused:
        assert refused.process.wait(DEADLINE) == 1
    assert refused.log.read_text().splitlines()[-1].startswith(expected)

"""Slipway's images as a kubelet starts them: their user, a read-only root file system, their entry point.

`make test-images` builds them, which takes minutes.
"""

import json
import os
import shlex
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx
import pytest
from sklearn.datasets import load_digits

from serving.images.building.model_image import Built, build_image
from serving.images.store.model_store import ModelStore
from tests.rig.machine.ports import free_port

IMAGES = os.environ.get("SLIPWAY_IMAGES", "")
"""Names of the images, with `%s` in place of the last part: `localhost/slipway/%s:0.1.0`."""
BUILDAH = shlex.split(os.environ.get("BUILDAH", "buildah"))
ENGINES = Path(__file__).parents[3] / "manifests" / "engines"
START = """
set -e
root=$1 mount=$2 target=$3
shift 3
mount --bind "$root" "$root"
mount --rbind /proc "$root/proc"
mount --rbind /dev "$root/dev"
mkdir -p "$root$target"
[ -z "$mount" ] || mount --bind "$mount" "$root$target"
mount -o remount,ro,bind "$root"
exec chroot --userspec="$USERSPEC" "$root" "$@"
"""
"""In a mount namespace of its own: what a container runtime does with an image and one volume."""

pytestmark = [
    pytest.mark.root,
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
    pytest.mark.skipif(not IMAGES, reason="`make test-images` builds the images, and runs this"),
]


def buildah(*arguments: str) -> str:
    return subprocess.run([*BUILDAH, *arguments], capture_output=True, text=True, check=True).stdout.strip()


@dataclass
class Image:
    """The mounted file system of an image, and its configuration."""

    root: Path
    user: str
    entry_point: list[str]
    environment: dict[str, str]

    def start(
        self,
        *arguments: str,
        volume: tuple[Path | str, str] = ("", "/mnt"),
        output: int | None = None,
        **env: str,
    ) -> subprocess.Popen[str]:
        """Start the entry point with a volume (a directory, and where it is mounted)."""
        return subprocess.Popen(
            [
                *("unshare", "--mount", "sh", "-c", START, "sh", str(self.root), str(volume[0]), volume[1]),
                *("env", "-i", *(f"{k}={v}" for k, v in (self.environment | env).items())),
                *self.entry_point,
                *arguments,
            ],
            env={"PATH": os.environ["PATH"], "USERSPEC": self.user},
            stdout=output,
            text=True,
        )

    def output(self, *arguments: str) -> str:
        """Run the entry point to its end; return what it prints."""
        with self.start(*arguments, output=subprocess.PIPE) as process:
            text, _ = process.communicate(timeout=120)
            assert process.returncode == 0, text
        return text


@contextmanager
def mounted(name: str) -> Iterator[Image]:
    container = buildah("from", "--pull-never", IMAGES % name)
    try:
        config = json.loads(buildah("inspect", container))["OCIv1"]["config"]
        environment = dict(entry.split("=", 1) for entry in config["Env"])
        root = Path(buildah("mount", container))
        yield Image(root, config["User"], config["Entrypoint"], environment)
    finally:
        buildah("rm", container)


@pytest.fixture
def volume() -> Iterator[Path]:
    """A directory that every user may write to; those of pytest are closed to others."""
    with TemporaryDirectory(prefix="slipway-images-") as folder:
        Path(folder).chmod(0o777)
        yield Path(folder)


def trained(volume: Path) -> Built:
    """Train in the image of Jobs, and make the image of its output."""
    with mounted("python") as python:
        arguments = ("-m", "serving.training.digits", "--estimator", "logistic")
        training = python.start(
            *arguments, volume=(volume, "/mnt/output"), SLIPWAY_OUTPUT_DIR="/mnt/output/model"
        )
        assert training.wait(timeout=300) == 0
    store = ModelStore(volume / "store")
    return build_image(volume / "model", store, repository="slipway.local/default/digits", lineage={})


def ready(base: str, server: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 120
    while True:
        assert server.poll() is None, "the server has ended"
        assert time.monotonic() < deadline, "the server does not become ready"
        try:
            if httpx.get(f"{base}/v2/health/ready").status_code == 200:
                return
        except httpx.TransportError:
            time.sleep(0.1)


def test_a_model_that_the_python_image_trained_is_served_by_the_sklearn_image(volume: Path) -> None:
    built, port = trained(volume), free_port()
    tree = ModelStore(volume / "store").tree(built.digest)
    values = load_digits().data[:3]
    environment = {
        "SLIPWAY_MODEL_NAME": "digits",
        "SLIPWAY_MODEL_VERSION": "digits-v1",
        "SLIPWAY_MODEL_DIR": "/mnt/model/models",
        "SLIPWAY_MODEL_DIGEST": built.digest,
        "HOST": "127.0.0.1",
        "PORT": str(port),
    }
    with mounted("sklearn") as image:
        server = image.start(volume=(tree, "/mnt/model"), **environment)
        try:
            ready(f"http://127.0.0.1:{port}", server)
            uids = Path(f"/proc/{server.pid}/status").read_text().partition("Uid:")[2].split()[:4]
            assert set(uids) == {"65532"}
            options = Path(f"/proc/{server.pid}/mounts").read_text().partition(" / ")[2].split()[1]
            assert "ro" in options.split(",")
            inputs = [{"name": "input", "datatype": "FP64", "shape": [3, 64], "data": values.tolist()}]
            url = f"http://127.0.0.1:{port}/v2/models/digits/infer"
            answer = httpx.post(url, json={"inputs": inputs}, timeout=30)
            assert answer.status_code == 200, answer.text
            assert answer.json()["outputs"][0]["data"] == [0, 1, 2]
        finally:
            server.terminate()
            assert server.wait(timeout=60) == 0


def test_the_components_image_runs_slipway_and_its_envoy() -> None:
    with mounted("components") as image:
        assert metadata.version("slipway") in image.output("version", "--client")
        image.entry_point = ["python3", "-c"]
        find = "import os; from serving.router.envoy.process.binary import find_envoy"
        assert "1.40" in image.output(f"{find}; os.execv(find_envoy(), ['envoy', '--version'])")


def test_the_components_image_has_the_manifests_of_engines_that_controllers_read_at_their_start() -> None:
    with mounted("components") as image:
        image.entry_point = ["python3", "-c"]
        known = image.output("from serving import engines; print(*sorted(engines.shipped()))").split()
        assert known == sorted(file.stem for file in ENGINES.glob("*.yaml"))


@pytest.mark.parametrize("name", ["components", "python", "sklearn", "transfer"])
def test_an_image_has_no_build_tools_and_nothing_to_write(name: str) -> None:
    with mounted(name) as image:
        for folder in ("usr/bin", "usr/local/bin", "opt/slipway/bin"):
            programs = {file.name.rstrip("0123456789.") for file in (image.root / folder).glob("*")}
            assert not programs & {"gcc", "cc", "ld", "make", "pip", "apt", "apt-get"}
        assert not list((image.root / "opt").rglob("pip"))
        own = [*(image.root / "opt" / "slipway").rglob("*")]
        assert len(own) > 1000
        assert [
            file
            for file in own
            if not file.is_symlink() and (file.stat().st_uid or file.stat().st_mode & 0o22)
        ] == []


@pytest.mark.parametrize("name", ["components", "python", "sklearn", "transfer"])
def test_modules_of_an_image_are_compiled_for_any_time_of_their_files(name: str) -> None:
    with mounted(name) as image:
        compiled = [*(image.root / "opt").rglob("*.pyc")]
        assert len(compiled) > 300
        # PEP 552: 1 is a hash of the source that is not checked.
        assert {int.from_bytes(file.read_bytes()[4:8], "little") for file in compiled} == {1}

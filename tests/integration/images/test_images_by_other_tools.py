"""Pushed images are opened by independent programs."""

import filecmp
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from serving import errors
from serving.images.building.model_image import Built
from serving.images.registry import Credentials, Reference, Registry, manifests, pull, push
from serving.images.store.model_store import ModelStore
from tests.rig.servers.registry_server import RegistryServer


def program(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"{name} is not installed (Debian package {name})")
    return path


def run(*command: object, **environment: str) -> str:
    completed = subprocess.run(
        [str(part) for part in command],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | environment,
    )
    assert completed.returncode == 0, completed.stderr
    return completed.stdout


def same_files(a: Path, b: Path) -> bool:
    names = sorted(str(path.relative_to(a)) for path in a.rglob("*") if path.is_file())
    return (
        names == sorted(str(path.relative_to(b)) for path in b.rglob("*") if path.is_file())
        and filecmp.cmpfiles(a, b, names, shallow=False)[0] == names
    )


@pytest.mark.usefixtures("pushed")
def test_skopeo_reads_the_image(target: Reference, built: Built) -> None:
    skopeo = program("skopeo")
    inspected = json.loads(run(skopeo, "inspect", "--tls-verify=false", f"docker://{target}"))
    assert inspected["Digest"] == built.digest
    assert inspected["Os"] == "linux"
    config = json.loads(run(skopeo, "inspect", "--tls-verify=false", "--config", f"docker://{target}"))
    assert config["rootfs"]["diff_ids"] == inspected["Layers"]


@pytest.mark.usefixtures("pushed")
def test_umoci_unpacks_what_skopeo_copied(target: Reference, trained: Path, tmp_path: Path) -> None:
    skopeo, umoci = program("skopeo"), program("umoci")
    copied, bundle = tmp_path / "layout", tmp_path / "bundle"
    run(
        skopeo,
        "--insecure-policy",
        "copy",
        "--src-tls-verify=false",
        f"docker://{target}",
        f"oci:{copied}:v1",
    )
    rootless = [] if os.geteuid() == 0 else ["--rootless"]
    run(umoci, "unpack", *rootless, "--image", f"{copied}:v1", bundle)
    assert same_files(bundle / "rootfs" / "models", trained)


@pytest.mark.usefixtures("pushed")
def test_skopeo_copies_between_repositories_without_changing_the_digest(
    target: Reference, built: Built
) -> None:
    skopeo = program("skopeo")
    copy = target.sibling(f"{target.repository}-copy").tagged("v1")
    run(
        skopeo,
        "--insecure-policy",
        "copy",
        "--preserve-digests",
        "--src-tls-verify=false",
        "--dest-tls-verify=false",
        f"docker://{target}",
        f"docker://{copy}",
    )
    inspected = json.loads(run(skopeo, "inspect", "--tls-verify=false", f"docker://{copy}"))
    assert inspected["Digest"] == built.digest


@pytest.mark.usefixtures("pushed")
def test_buildah_mounts_the_image(target: Reference, trained: Path, tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("buildah mount needs root")
    policy = tmp_path / "policy.json"
    policy.write_text('{"default": [{"type": "insecureAcceptAnything"}]}')
    buildah = [
        program("buildah"),
        "--storage-driver",
        "vfs",
        "--root",
        tmp_path / "root",
        "--runroot",
        tmp_path / "run",
    ]
    name = run(
        *buildah, "from", "--tls-verify=false", "--signature-policy", policy, f"docker://{target}"
    ).strip()
    try:
        mounted = Path(run(*buildah, "mount", name).strip())
        assert same_files(mounted / "models", trained)
    finally:
        run(*buildah, "rm", name)


@pytest.mark.usefixtures("pushed")
def test_modelpack_client_restores_the_tree(target: Reference, trained: Path, tmp_path: Path) -> None:
    modelpack = pytest.importorskip("modelpack_client", reason="modelpack-client is not installed")
    modelpack.ModelPackClient(insecure=True).pull(str(target.tagged("v1-modelpack")), str(tmp_path / "out"))
    assert same_files(tmp_path / "out" / "models", trained)


def made_by_umoci(work: Path, files: dict[str, bytes]) -> str:
    """An image of one gzip layer, as a source for skopeo."""
    umoci, layout, bundle = program("umoci"), work / "layout", work / "bundle"
    run(umoci, "init", "--layout", layout)
    run(umoci, "new", "--image", f"{layout}:v1")
    run(umoci, "unpack", "--rootless", "--image", f"{layout}:v1", bundle)
    for name, data in files.items():
        path = bundle / "rootfs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    run(umoci, "repack", "--image", f"{layout}:v2", bundle)
    return f"oci:{layout}:v2"


@pytest.mark.parametrize(
    ("form", "layer"),
    [("oci", "tar+gzip"), ("zstd", "tar+zstd"), ("v2s2", "docker.image.rootfs.diff.tar.gzip")],
)
async def test_image_of_another_builder_is_pulled_and_pushed_unchanged(
    shared_registry: RegistryServer, tmp_path: Path, form: str, layer: str
) -> None:
    skopeo = program("skopeo")
    weights = os.urandom(300_000)
    source = made_by_umoci(
        tmp_path, {"models/model.bin": weights, "models/deep/config.json": b"{}", "etc/motd": b"not a model"}
    )
    options = {"oci": [], "v2s2": ["--format=v2s2"], "zstd": ["--dest-compress-format=zstd"]}[form]
    if form == "zstd":
        run(skopeo, "--insecure-policy", "copy", "--dest-decompress", source, f"dir:{tmp_path}/plain")
        source = f"dir:{tmp_path}/plain"
    target = Reference.parse(f"{shared_registry.host}/foreign/{form}:v1")
    run(
        skopeo, "--insecure-policy", "copy", *options, "--dest-tls-verify=false", source, f"docker://{target}"
    )
    store = ModelStore(tmp_path / "store")
    copy = target.sibling(f"foreign/{form}-copy").tagged("v1")
    async with Registry(Credentials.none()) as registry:
        original = await manifests.get(registry, target)
        digest = await pull(registry, store, target)
        await push(registry, store, digest, copy)
        copied = await manifests.get(registry, copy)
    assert original.document["layers"][0]["mediaType"].endswith(layer)
    assert (store.tree(digest) / "models" / "model.bin").read_bytes() == weights
    assert (store.tree(digest) / "models" / "deep" / "config.json").read_bytes() == b"{}"
    assert not (store.tree(digest) / "etc").exists()
    store.verify(digest, deep=True)
    assert copied == original
    run(skopeo, "inspect", "--tls-verify=false", f"docker://{copy}")


async def test_image_without_models_is_refused(shared_registry: RegistryServer, tmp_path: Path) -> None:
    skopeo = program("skopeo")
    source = made_by_umoci(tmp_path, {"etc/motd": b"not a model"})
    target = Reference.parse(f"{shared_registry.host}/foreign/none-of-models:v1")
    run(skopeo, "--insecure-policy", "copy", "--dest-tls-verify=false", source, f"docker://{target}")
    store = ModelStore(tmp_path / "store")
    async with Registry(Credentials.none()) as registry:
        with pytest.raises(errors.Permanent) as raised:
            await pull(registry, store, target)
    assert raised.value.reason == "InvalidImage"
    assert store.images() == []

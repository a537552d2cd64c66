"""The files that a runtime hashes when it opens an image, with and without a checked seal."""

import json
from pathlib import Path

import pytest

from serving import errors
from serving.images.capture.build import capture
from serving.images.documents import oci
from serving.images.store.model_store import ModelStore
from serving.runtimes.loading import ModelFiles, verify

FILES = ModelFiles(("model.pt2", "model.pkl"), ("weights.pt",))
CONTENT = {
    "model.pt2": b"program",
    "weights.pt": b"many numbers",
    "notes.txt": b"for people",
    "slipway.json": b'{"framework": "pytorch"}',
}


@pytest.fixture
def image(tmp_path: Path) -> tuple[Path, str]:
    """A writable copy of an image as it is mounted, and its digest."""
    return mounted(tmp_path, CONTENT)


def mounted(base: Path, content: dict[str, bytes]) -> tuple[Path, str]:
    (base / "out").mkdir()
    for name, data in content.items():
        (base / "out" / name).write_bytes(data)
    store = ModelStore(base / "store")
    digest = capture(base / "out", store, repository="r", lineage={}).digest
    (base / "mnt" / "models").mkdir(parents=True)
    for name in ("manifest.json", *(f"models/{name}" for name in content)):
        (base / "mnt" / name).write_bytes((store.tree(digest) / name).read_bytes())
    return base / "mnt" / "models", digest


def test_model_files_are_open_after_verification(image: tuple[Path, str]) -> None:
    models, digest = image
    model_files = verify(models, digest, "", FILES)
    assert bytes(model_files.program.data) == b"program"
    assert Path(model_files.program.reopen_path).read_bytes() == b"program"
    assert {name: bytes(file.data) for name, file in model_files.weights.items()} == {
        "weights.pt": b"many numbers"
    }
    assert model_files.output.framework == "pytorch"
    model_files.close()


@pytest.mark.parametrize("sealed", [True, False])
@pytest.mark.parametrize("name", ["model.pt2", "slipway.json"])
def test_programs_and_the_manifest_are_always_hashed(
    *, name: str, sealed: bool, image: tuple[Path, str]
) -> None:
    models, digest = image
    (models / name).write_bytes(b"evil")
    with pytest.raises(errors.Permanent, match=f"^{name}: must be sha256:") as caught:
        verify(models, digest, digest if sealed else "", FILES)
    assert caught.value.reason == "DigestMismatch"


@pytest.mark.parametrize("name", ["weights.pt", "notes.txt"])
def test_other_files_are_hashed_unless_the_seal_of_this_image_was_checked(
    name: str, image: tuple[Path, str]
) -> None:
    models, digest = image
    (models / name).write_bytes(b"changed")
    for sealed in ("", "sha256:" + "0" * 64):
        with pytest.raises(errors.Permanent, match=f"^{name}: must be sha256:"):
            verify(models, digest, sealed, FILES)
    verify(models, digest, digest, FILES).close()


@pytest.mark.parametrize("sealed", [True, False])
def test_an_extra_or_missing_file_is_always_refused(*, sealed: bool, image: tuple[Path, str]) -> None:
    models, digest = image
    (models / "notes.txt").rename(models / "more.txt")
    with pytest.raises(errors.Permanent, match=r"^more.txt: is not in the manifest"):
        verify(models, digest, digest if sealed else "", FILES)


@pytest.mark.parametrize("names", [["weights.pt"], ["model.pt2", "model.pkl"]])
def test_an_image_is_refused_without_exactly_one_program(names: list[str], tmp_path: Path) -> None:
    models, digest = mounted(tmp_path, dict.fromkeys(names, b"x"))
    with pytest.raises(
        errors.Permanent, match=r"^exactly one of model.pt2, model.pkl must be in the image"
    ) as caught:
        verify(models, digest, "", FILES)
    assert caught.value.reason == "ModelFileMissing"


def test_an_empty_program_is_opened(tmp_path: Path) -> None:
    models, digest = mounted(tmp_path, {"model.pkl": b""})
    model_files = verify(models, digest, "", FILES)
    assert model_files.program.data == b""
    model_files.close()


@pytest.mark.parametrize("kind", ["link", "directory"])
def test_a_program_that_is_not_a_regular_file_is_refused(
    kind: str, image: tuple[Path, str], tmp_path: Path
) -> None:
    models, digest = image
    (models / "model.pt2").rename(tmp_path / "elsewhere")
    if kind == "link":
        (models / "model.pt2").symlink_to(tmp_path / "elsewhere")
    else:
        (models / "model.pt2").mkdir()
    with pytest.raises(errors.Permanent) as caught:
        verify(models, digest, digest, FILES)
    assert caught.value.reason == "DigestMismatch"


def test_an_image_without_file_digests_is_opened_only_with_its_seal(image: tuple[Path, str]) -> None:
    models, _ = image
    manifest = models.parent / "manifest.json"
    document = json.loads(manifest.read_bytes())
    for layer in document["layers"]:
        del layer["annotations"]
    manifest.write_text(json.dumps(document))
    digest = oci.digest_of(manifest.read_bytes())
    model_files = verify(models, digest, digest, FILES)
    assert bytes(model_files.program.data) == b"program"
    assert model_files.output.framework == "pytorch"
    model_files.close()
    with pytest.raises(errors.Permanent, match="no node has checked its seal") as caught:
        verify(models, digest, "", FILES)
    assert caught.value.reason == "InvalidImage"

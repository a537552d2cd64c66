"""The files that a runtime hashes when it opens an image, with and without a checked seal."""

import json
from pathlib import Path

import pytest

from serving import errors
from serving.images.building.model_image import build_image
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
    """A writable copy of an image as it is mounted, and the digest of its list of files."""
    return mounted(tmp_path, CONTENT)


def mounted(base: Path, content: dict[str, bytes]) -> tuple[Path, str]:
    (base / "out").mkdir()
    for name, data in content.items():
        (base / "out" / name).write_bytes(data)
    store = ModelStore(base / "store")
    built = build_image(base / "out", store, repository="r", lineage={})
    (base / "mnt" / "models").mkdir(parents=True)
    for name in ("files.json", *(f"models/{name}" for name in content)):
        (base / "mnt" / name).write_bytes((store.tree(built.digest) / name).read_bytes())
    return base / "mnt" / "models", built.files_digest


def test_model_files_are_open_after_verification(image: tuple[Path, str]) -> None:
    models, digest = image
    model_files = verify(models, digest, FILES, is_sealed=False)
    assert bytes(model_files.program.data) == b"program"
    assert Path(model_files.program.reopen_path).read_bytes() == b"program"
    assert {name: bytes(file.data) for name, file in model_files.model_weights.items()} == {
        "weights.pt": b"many numbers"
    }
    assert model_files.output.framework == "pytorch"
    model_files.close()


@pytest.mark.parametrize("sealed", [True, False])
@pytest.mark.parametrize("name", ["model.pt2", "slipway.json"])
def test_programs_and_their_description_are_always_hashed(
    *, name: str, sealed: bool, image: tuple[Path, str]
) -> None:
    models, digest = image
    (models / name).write_bytes(b"evil")
    with pytest.raises(errors.Permanent, match=f"^{name}: must be sha256:") as caught:
        verify(models, digest, FILES, is_sealed=sealed)
    assert caught.value.reason == "DigestMismatch"


@pytest.mark.parametrize("name", ["weights.pt", "notes.txt"])
def test_other_files_are_hashed_unless_the_seal_of_the_image_was_checked(
    name: str, image: tuple[Path, str]
) -> None:
    models, digest = image
    (models / name).write_bytes(b"changed")
    with pytest.raises(errors.Permanent, match=f"^{name}: must be sha256:"):
        verify(models, digest, FILES, is_sealed=False)
    verify(models, digest, FILES, is_sealed=True).close()


@pytest.mark.parametrize("sealed", [True, False])
def test_an_extra_or_missing_file_is_always_refused(*, sealed: bool, image: tuple[Path, str]) -> None:
    models, digest = image
    (models / "notes.txt").rename(models / "more.txt")
    with pytest.raises(errors.Permanent, match=r"^more.txt: is not in files.json"):
        verify(models, digest, FILES, is_sealed=sealed)


@pytest.mark.parametrize("names", [["weights.pt"], ["model.pt2", "model.pkl"]])
def test_an_image_is_refused_without_exactly_one_program(names: list[str], tmp_path: Path) -> None:
    models, digest = mounted(tmp_path, dict.fromkeys(names, b"x"))
    with pytest.raises(
        errors.Permanent, match=r"^exactly one of model.pt2, model.pkl must be in the image"
    ) as caught:
        verify(models, digest, FILES, is_sealed=False)
    assert caught.value.reason == "ModelFileMissing"


def test_an_empty_program_is_opened(tmp_path: Path) -> None:
    models, digest = mounted(tmp_path, {"model.pkl": b""})
    model_files = verify(models, digest, FILES, is_sealed=False)
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
        verify(models, digest, FILES, is_sealed=True)
    assert caught.value.reason == "DigestMismatch"


@pytest.mark.parametrize("sealed", [True, False])
def test_a_changed_list_is_refused_even_if_it_is_that_of_the_files(
    *, sealed: bool, image: tuple[Path, str]
) -> None:
    models, digest = image
    (models / "model.pt2").write_bytes(b"evil")
    listing = models.parent / "files.json"
    document = json.loads(listing.read_bytes())
    document["files"][0]["digest"] = oci.digest_of(b"evil")
    assert document["files"][0]["path"] == "model.pt2"
    listing.write_text(json.dumps(document))
    with pytest.raises(errors.Permanent, match=r"^files.json: must be the ModelVersion's sha256:") as caught:
        verify(models, digest, FILES, is_sealed=sealed)
    assert caught.value.reason == "DigestMismatch"


@pytest.mark.parametrize("sealed", [True, False])
def test_an_image_without_the_list_is_refused(*, sealed: bool, image: tuple[Path, str]) -> None:
    models, digest = image
    (models.parent / "files.json").unlink()
    with pytest.raises(errors.Permanent, match=r"^files.json: is missing beside the model") as caught:
        verify(models, digest, FILES, is_sealed=sealed)
    assert caught.value.reason == "InvalidImage"

"""Capturing real directories: reproducible, bounded, whole or not at all, and never led out of the tree."""

import io
import json
import os
import shutil
import socket
import subprocess
import sys
import tarfile
import threading
from pathlib import Path

import pytest

from serving import errors
from serving.images.capture import source
from serving.images.capture.build import Built, capture
from serving.images.documents import oci
from serving.images.store import disk
from serving.images.store.model_store import ModelStore

REPOSITORY = "slipway.local/default/digits"
ROOT = Path(__file__).parents[3]


def grab(path: Path, store: ModelStore, **options) -> Built:
    return capture(path, store, repository=REPOSITORY, lineage={"kind": "Job", "uid": "u1"}, **options)


@pytest.fixture
def trained(tmp_path: Path) -> Path:
    path = tmp_path / "out"
    (path / "vocabulary").mkdir(parents=True)
    (path / "weights.bin").write_bytes(os.urandom(5_000_000))
    (path / "vocabulary" / "désert.txt").write_text("sand")
    (path / "empty").touch()
    (path / "slipway.json").write_text(
        json.dumps({"framework": "sklearn", "metrics": {"accuracy": 0.9}, "sourceRevision": "r7"})
    )
    return path


def refused(path: Path, store: ModelStore, reason: str, says: str = "", **options) -> None:
    with pytest.raises((errors.Permanent, errors.Temporary)) as caught:
        grab(path, store, **options)
    assert caught.value.reason == reason
    assert says in str(caught.value)
    assert not list((store.root / "trees").iterdir())
    assert not list((store.root / "tmp").iterdir())


def test_what_is_captured_is_described_and_lies_read_only_in_the_tree(
    trained: Path, store: ModelStore
) -> None:
    built = grab(trained, store)
    assert built.image == f"{REPOSITORY}@{built.digest}"
    assert (built.framework, built.metrics, built.source_revision) == ("sklearn", {"accuracy": 0.9}, "r7")
    assert [file.path for file in built.files] == [
        "empty",
        "slipway.json",
        "vocabulary/désert.txt",
        "weights.bin",
    ]
    assert built.size == sum(file.size for file in built.files)
    tree = store.tree(built.digest)
    for file in built.files:
        copy = tree / "models" / file.path
        assert copy.read_bytes() == (trained / file.path).read_bytes()
        assert disk.file_digest(copy) == file.digest
        assert copy.stat().st_mode & 0o777 == 0o444
    assert {p.stat().st_mode & 0o777 for p in (tree, tree / "models", tree / "models/vocabulary")} == {0o555}
    assert store.verify(built.digest, deep=True) == built.files


def test_the_same_files_give_the_same_digest_whatever_their_times_modes_and_job(
    trained: Path, store: ModelStore, tmp_path: Path
) -> None:
    first = grab(trained, store)
    again = tmp_path / "again"
    shutil.copytree(trained, again)
    for path in again.rglob("*"):
        os.utime(path, (1, 1))
        path.chmod(0o700)
    other = ModelStore(tmp_path / "other")
    second = capture(again, other, repository="elsewhere/m", lineage={"kind": "Job", "uid": "u2"})
    assert (second.digest, second.modelpack) == (first.digest, first.modelpack)
    assert second.lineage != first.lineage


def test_capturing_again_changes_nothing(trained: Path, store: ModelStore) -> None:
    def everything() -> dict[Path, tuple[int, int]]:
        return {
            p: (p.stat().st_ino, p.stat().st_mtime_ns)
            for p in store.root.rglob("*")
            if p.is_file() and p.name != "used"
        }

    first = grab(trained, store)
    before = everything()
    assert grab(trained, store) == first
    assert everything() == before


def test_one_changed_small_file_makes_one_new_layer(trained: Path, store: ModelStore) -> None:
    one = json.loads(store.read_manifest(grab(trained, store).digest))
    (trained / "vocabulary" / "désert.txt").write_text("dune")
    two = json.loads(store.read_manifest(grab(trained, store).digest))
    old = {layer["digest"] for layer in one["layers"]}
    assert len([layer for layer in two["layers"] if layer["digest"] not in old]) == 1
    assert len(two["layers"]) == 2


def test_each_file_is_on_disk_once_and_layers_unpack_to_the_files(
    trained: Path, store: ModelStore, tmp_path: Path
) -> None:
    built = grab(trained, store)
    assert store.size() < built.size + 20_000
    for layer in json.loads(store.read_manifest(built.digest))["layers"]:
        data = b"".join(store.read_blob(layer["digest"]))
        assert (oci.digest_of(data), len(data)) == (layer["digest"], store.blob_size(layer["digest"]))
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as tar:
            tar.extractall(tmp_path / "unpacked", filter="data")
    for file in built.files:
        assert disk.file_digest(tmp_path / "unpacked" / "models" / file.path) == file.digest


@pytest.mark.parametrize("make", ["symlink", "dangling", "hardlink", "fifo", "socket", "directory link"])
def test_anything_but_files_with_one_name_is_refused(make: str, trained: Path, store: ModelStore) -> None:
    odd = trained / "vocabulary" / "odd"
    if make == "symlink":
        odd.symlink_to("/etc/hostname")
    elif make == "dangling":
        odd.symlink_to("nowhere")
    elif make == "directory link":
        odd.symlink_to("/etc")
    elif make == "hardlink":
        odd.hardlink_to(trained / "weights.bin")
    elif make == "fifo":
        os.mkfifo(odd)
    else:
        with socket.socket(socket.AF_UNIX) as listener:
            here = os.open(odd.parent, os.O_RDONLY)
            listener.bind(f"/proc/self/fd/{here}/odd")
            os.close(here)
    refused(trained, store, "InvalidOutput")


def test_a_source_that_is_a_link_is_refused(trained: Path, store: ModelStore, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(trained)
    refused(tmp_path / "link", store, "InvalidOutput", "link")


def test_a_link_on_the_way_is_refused_below_the_volume(
    trained: Path, store: ModelStore, tmp_path: Path
) -> None:
    volume = tmp_path / "volume"
    volume.mkdir()
    (volume / "run").symlink_to(trained)
    refused(volume / "run" / "vocabulary", store, "InvalidOutput", "run", within=volume)


@pytest.mark.parametrize("path", ["relative", "/nowhere/at/all", "/tmp/../etc"])
def test_a_source_that_is_no_absolute_directory_is_refused(path: str, store: ModelStore) -> None:
    refused(Path(path), store, "InvalidOutput")


def test_nothing_but_a_manifest_is_an_empty_output(store: ModelStore, tmp_path: Path) -> None:
    (tmp_path / "out" / "deep").mkdir(parents=True)
    refused(tmp_path / "out", store, "EmptyOutput")
    (tmp_path / "out" / "slipway.json").write_text("{}")
    refused(tmp_path / "out", store, "EmptyOutput")


def test_a_bad_manifest_is_refused_by_its_field(trained: Path, store: ModelStore) -> None:
    (trained / "slipway.json").write_text('{"metrics": {"accuracy": "high"}}')
    refused(trained, store, "InvalidManifest", "metrics['accuracy']")


def test_a_framework_that_the_output_contradicts_is_refused(trained: Path, store: ModelStore) -> None:
    refused(trained, store, "InvalidManifest", "'xgboost'", framework="xgboost")


def test_a_name_that_is_not_utf8_is_refused(trained: Path, store: ModelStore) -> None:
    Path(os.fsdecode(os.fsencode(trained) + b"/\xff")).write_text("x")
    refused(trained, store, "InvalidOutput", "UTF-8")


@pytest.mark.parametrize("what", ["grow", "rewrite", "add", "remove"])
def test_a_tree_that_changes_while_it_is_read_is_not_captured(
    what: str, trained: Path, store: ModelStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = source.open_file

    def meddling(root: int, path: str, seen: disk.FileStamp):
        if path == "weights.bin":
            if what == "grow":
                with (trained / path).open("ab") as file:
                    file.write(b"x")
            elif what == "rewrite":
                (trained / "empty").write_bytes(b"")
            elif what == "add":
                (trained / "late").touch()
            else:
                (trained / path).unlink()
        return real(root, path, seen)

    monkeypatch.setattr(source, "open_file", meddling)
    refused(trained, store, "OutputStillChanging")


def test_a_touched_tree_is_noticed_by_its_seal_and_replaced_by_the_next_capture(
    trained: Path, store: ModelStore
) -> None:
    built = grab(trained, store)
    victim = store.tree(built.digest) / "models" / "empty"
    victim.chmod(0o644)
    victim.write_text("evil")
    with pytest.raises(errors.Permanent, match="changed after it was sealed"):
        store.verify(built.digest)
    grab(trained, store)
    assert store.verify(built.digest, deep=True) == built.files


def test_an_added_or_removed_file_breaks_the_seal(trained: Path, store: ModelStore) -> None:
    built = grab(trained, store)
    models = store.tree(built.digest) / "models"
    models.chmod(0o755)
    (models / "more").touch()
    with pytest.raises(errors.Permanent, match="more was changed"):
        store.verify(built.digest)
    (models / "more").unlink()
    (models / "empty").unlink()
    with pytest.raises(errors.Permanent, match="empty is missing"):
        store.verify(built.digest)


def test_an_image_that_is_not_there_is_said_to_be_missing(store: ModelStore) -> None:
    with pytest.raises(errors.Permanent) as caught:
        store.verify("sha256:" + "0" * 64)
    assert caught.value.reason == "ImageMissing"


def test_a_digest_that_is_a_path_is_refused(store: ModelStore) -> None:
    with pytest.raises(errors.Permanent) as caught:
        store.tree("sha256:../../etc")
    assert caught.value.reason == "InvalidDigest"


def test_captures_at_the_same_time_end_with_one_sound_image(trained: Path, store: ModelStore) -> None:
    found: list[Built] = []
    threads = [
        threading.Thread(target=lambda: found.append(grab(trained, ModelStore(store.root)))) for _ in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({built.digest for built in found}) == 1
    assert len(found) == 6
    store.verify(found[0].digest, deep=True)
    assert len(store.referrers(found[0].digest)) == 2


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc: getrusage's figure includes the parent's")
@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_memory_does_not_grow_with_the_files(compression: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    with (out / "weights").open("wb") as file:
        file.truncate(200_000_000)
    program = (
        "import re, sys; from pathlib import Path\n"
        "from serving.images.capture.build import capture; from serving.images.store.model_store import ModelStore\n"
        "capture(Path(sys.argv[1]), ModelStore(Path(sys.argv[2])), repository='r', lineage={}, compression=sys.argv[3])\n"
        "print(re.search('VmHWM:\\s+(\\d+)', Path('/proc/self/status').read_text())[1])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, out, tmp_path / "store", compression], cwd=ROOT, capture_output=True, text=True, check=True
    )  # fmt: skip
    assert int(done.stdout) < 100_000, "KiB"


def test_modelpack_and_lineage_refer_to_the_image(trained: Path, store: ModelStore) -> None:
    built = grab(trained, store)
    found = {described["digest"]: described["artifactType"] for described, _ in store.referrers(built.digest)}
    assert found == {built.modelpack: oci.MODELPACK_TYPE, built.lineage: oci.LINEAGE_TYPE}
    for described, document in store.referrers(built.digest):
        assert oci.digest_of(document) == described["digest"]
        assert b"".join(store.read_blob(described["digest"])) == document

"""Captures of real directories are reproducible, bounded, atomic, and never leave the tree."""

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
from serving.images.building import source
from serving.images.building.model_image import Built, build_image
from serving.images.documents import oci
from serving.images.store import disk
from serving.images.store.model_store import ModelStore

REPOSITORY = "slipway.local/default/digits"
ROOT = Path(__file__).parents[3]


def grab(path: Path, store: ModelStore, **options) -> Built:
    return build_image(path, store, repository=REPOSITORY, lineage={"kind": "Job", "uid": "u1"}, **options)


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


def refused(path: Path, store: ModelStore, reason: str, message: str = "", **options) -> None:
    with pytest.raises((errors.Permanent, errors.Temporary)) as caught:
        grab(path, store, **options)
    assert caught.value.reason == reason
    assert message in str(caught.value)
    assert not list((store.root / "trees").iterdir())
    assert not list((store.root / "tmp").iterdir())


def test_captured_image_is_described_and_its_files_are_read_only(trained: Path, store: ModelStore) -> None:
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


def test_digest_depends_on_the_files_and_not_on_times_modes_or_job(
    trained: Path, store: ModelStore, tmp_path: Path
) -> None:
    first = grab(trained, store)
    copied = tmp_path / "again"
    shutil.copytree(trained, copied)
    for path in copied.rglob("*"):
        os.utime(path, (1, 1))
        path.chmod(0o700)
    second_store = ModelStore(tmp_path / "other")
    second = build_image(copied, second_store, repository="elsewhere/m", lineage={"kind": "Job", "uid": "u2"})
    assert (second.digest, second.modelpack_digest) == (first.digest, first.modelpack_digest)
    assert second.lineage_digest != first.lineage_digest


def test_second_capture_of_the_same_files_changes_nothing(trained: Path, store: ModelStore) -> None:
    def stamps() -> dict[Path, tuple[int, int]]:
        return {
            p: (p.stat().st_ino, p.stat().st_mtime_ns)
            for p in store.root.rglob("*")
            if p.is_file() and p.name != "used"
        }

    first = grab(trained, store)
    stamps_before = stamps()
    assert grab(trained, store) == first
    assert stamps() == stamps_before


def test_changed_small_file_makes_one_new_layer_besides_the_list(trained: Path, store: ModelStore) -> None:
    first = json.loads(store.read_manifest(grab(trained, store).digest))
    (trained / "vocabulary" / "désert.txt").write_text("dune")
    second = json.loads(store.read_manifest(grab(trained, store).digest))
    old = {layer["digest"] for layer in first["layers"]}
    new = [layer["annotations"][oci.TITLE] for layer in second["layers"] if layer["digest"] not in old]
    assert new == ["models", "files.json"]
    assert len(second["layers"]) == 3


def test_files_are_stored_once_and_layers_unpack_to_them(
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
def test_links_and_special_files_are_refused(make: str, trained: Path, store: ModelStore) -> None:
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
            directory = os.open(odd.parent, os.O_RDONLY)
            listener.bind(f"/proc/self/fd/{directory}/odd")
            os.close(directory)
    refused(trained, store, "InvalidOutput")


def test_a_source_that_is_a_link_is_refused(trained: Path, store: ModelStore, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(trained)
    refused(tmp_path / "link", store, "InvalidOutput", "link")


def test_link_in_the_path_below_the_volume_is_refused(
    trained: Path, store: ModelStore, tmp_path: Path
) -> None:
    volume = tmp_path / "volume"
    volume.mkdir()
    (volume / "run").symlink_to(trained)
    refused(volume / "run" / "vocabulary", store, "InvalidOutput", "run", trusted_root=volume)


@pytest.mark.parametrize("path", ["relative", "/nowhere/at/all", "/tmp/../etc"])
def test_a_source_that_is_no_absolute_directory_is_refused(path: str, store: ModelStore) -> None:
    refused(Path(path), store, "InvalidOutput")


def test_output_without_model_files_is_empty(store: ModelStore, tmp_path: Path) -> None:
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


@pytest.mark.parametrize("change", ["grow", "rewrite", "add", "remove"])
def test_a_tree_that_changes_while_it_is_read_is_not_captured(
    change: str, trained: Path, store: ModelStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = source.open_file

    def meddling(root: int, path: str, stamp: disk.FileStamp):
        if path == "weights.bin":
            if change == "grow":
                with (trained / path).open("ab") as file:
                    file.write(b"x")
            elif change == "rewrite":
                (trained / "empty").write_bytes(b"")
            elif change == "add":
                (trained / "late").touch()
            else:
                (trained / path).unlink()
        return original(root, path, stamp)

    monkeypatch.setattr(source, "open_file", meddling)
    refused(trained, store, "OutputStillChanging")


def test_output_is_refused_when_a_path_is_longer_than_a_system_call_takes(
    trained: Path, store: ModelStore
) -> None:
    fds = [os.open(trained, os.O_RDONLY)]
    try:
        for _ in range(20):
            os.mkdir("d" * 250, dir_fd=fds[-1])
            fds.append(os.open("d" * 250, os.O_RDONLY, dir_fd=fds[-1]))
        fds.append(os.open("weights", os.O_WRONLY | os.O_CREAT, dir_fd=fds[-1]))
    finally:
        for fd in fds:
            os.close(fd)
    refused(trained, store, "InvalidOutput", "must have at most 3000 bytes")
    shutil.rmtree(trained)


@pytest.mark.parametrize("kind", ["link", "socket"])
def test_output_is_still_changing_when_a_file_becomes_another_kind_after_the_walk(
    kind: str, trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(trained)  # the path of a socket has at most 107 bytes
    with source.open_directory(trained, None) as root:
        stamps = source.walk(root)
        (trained / "weights.bin").unlink()
        if kind == "link":
            (trained / "weights.bin").symlink_to("empty")
        else:
            with socket.socket(socket.AF_UNIX) as server:
                server.bind("weights.bin")
        with (
            pytest.raises(errors.Temporary, match="changed"),
            source.open_file(root, "weights.bin", stamps["weights.bin"]),
        ):
            pass


def test_changed_tree_breaks_its_seal_and_is_replaced_by_the_next_capture(
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


def test_absent_image_is_reported_as_missing(store: ModelStore) -> None:
    with pytest.raises(errors.Permanent) as caught:
        store.verify("sha256:" + "0" * 64)
    assert caught.value.reason == "ImageMissing"


def test_a_digest_that_is_a_path_is_refused(store: ModelStore) -> None:
    with pytest.raises(errors.Permanent) as caught:
        store.tree("sha256:../../etc")
    assert caught.value.reason == "InvalidDigest"


def test_concurrent_captures_leave_one_valid_image(trained: Path, store: ModelStore) -> None:
    captured: list[Built] = []
    threads = [
        threading.Thread(target=lambda: captured.append(grab(trained, ModelStore(store.root))))
        for _ in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({built.digest for built in captured}) == 1
    assert len(captured) == 6
    store.verify(captured[0].digest, deep=True)
    assert len(store.referrers(captured[0].digest)) == 2


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc: getrusage's figure includes the parent's")
@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_memory_does_not_grow_with_the_files(compression: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    with (out / "weights").open("wb") as file:
        file.truncate(200_000_000)
    program = (
        "import re, sys; from pathlib import Path\n"
        "from serving.images.building.model_image import build_image\n"
        "from serving.images.store.model_store import ModelStore\n"
        "store = ModelStore(Path(sys.argv[2]))\n"
        "build_image(Path(sys.argv[1]), store, repository='r', lineage={}, compression=sys.argv[3])\n"
        "print(re.search('VmHWM:\\s+(\\d+)', Path('/proc/self/status').read_text())[1])"
    )
    completed = subprocess.run(
        [sys.executable, "-c", program, out, tmp_path / "store", compression],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(completed.stdout) < 100_000, "KiB"


def test_modelpack_and_lineage_refer_to_the_image(trained: Path, store: ModelStore) -> None:
    built = grab(trained, store)
    types = {
        descriptor["digest"]: descriptor["artifactType"] for descriptor, _ in store.referrers(built.digest)
    }
    assert types == {built.modelpack_digest: oci.MODELPACK_TYPE, built.lineage_digest: oci.LINEAGE_TYPE}
    for descriptor, document in store.referrers(built.digest):
        assert oci.digest_of(document) == descriptor["digest"]
        assert b"".join(store.read_blob(descriptor["digest"])) == document


STRANGER = 1_999_999_999


@pytest.mark.parametrize(
    ("name", "mode"), [("", 0o700), ("", 0o744), ("vocabulary", 0o711), ("vocabulary/désert.txt", 0o640)]
)
def test_output_is_refused_when_the_reader_may_not_read_a_part_of_it(
    name: str, mode: int, trained: Path, store: ModelStore
) -> None:
    volume = trained.parent
    volume.chmod(0o711)
    assert grab(trained, store, trusted_root=volume, reader_uid=os.getuid()).size
    (trained / name).chmod(mode)
    with pytest.raises(errors.Permanent, match=f"user {STRANGER}, got owner .* mode {mode:04o}") as caught:
        grab(trained, store, trusted_root=volume, reader_uid=STRANGER)
    assert caught.value.reason == "InvalidOutput"
    assert (name or trained.name) in str(caught.value)
    (trained / name).chmod(0o755)
    assert grab(trained, store, trusted_root=volume, reader_uid=STRANGER).size
    volume.chmod(0o700)
    with pytest.raises(errors.Permanent, match=f"^{volume}: must be readable"):
        grab(trained, store, trusted_root=volume, reader_uid=STRANGER)


def test_output_is_still_changing_when_its_mode_changes_after_the_check(trained: Path) -> None:
    with source.open_directory(trained, None) as root:
        stamps = source.walk(root, STRANGER)
        (trained / "weights.bin").chmod(0o600)
        with (
            pytest.raises(errors.Temporary, match="changed"),
            source.open_file(root, "weights.bin", stamps["weights.bin"]),
        ):
            pass


@pytest.mark.parametrize("place", ["out", "out/vocabulary", "", "link/vocabulary"])
def test_source_is_refused_when_it_is_not_apart_from_the_data_directory(
    place: str, trained: Path, store: ModelStore, tmp_path: Path
) -> None:
    (tmp_path / "link").symlink_to(trained)
    refused(
        tmp_path / place, store, "InvalidOutput", "must be apart from the data directory", data_dir=trained
    )
    assert grab(trained, store, data_dir=tmp_path / "out2").size


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_source_is_refused_when_it_lies_in_another_mount_namespace(
    trained: Path, store: ModelStore, tmp_path: Path
) -> None:
    """There the data directory may have any name."""
    (tmp_path / "elsewhere").mkdir()
    script = 'mount --bind "$0" "$1" && echo mounted && exec sleep 60'
    command = ["unshare", "--mount", "sh", "-c", script, str(trained), str(tmp_path / "elsewhere")]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"mounted\n"
        path = Path(f"/proc/{process.pid}/root{tmp_path / 'elsewhere'}")
        assert list(path.iterdir())
        refused(path, store, "InvalidOutput", "must be a directory of the machine's own", data_dir=trained)
        process.kill()

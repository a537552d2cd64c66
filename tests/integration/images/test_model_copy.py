"""The program of the init container copies a model from a real registry, and says why it fails."""

import asyncio
import base64
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from serving.images.building.model_image import Built
from serving.images.documents import image
from serving.images.registry import Credentials, Pushed, Reference, Registry, push
from serving.images.store.model_store import ModelStore
from serving.resources import names
from serving.resources.formats import file_list
from serving.runtimes import loading
from tests.objects.models.model_images import foreign, member, tar_of
from tests.rig.control_plane.convergence import until
from tests.rig.machine.faulty_proxy import FaultyProxy
from tests.rig.machine.full_disk import small_file_system
from tests.rig.servers.registry_server import PASSWORD, USER, RegistryServer

BIG = "weights/part-0.bin"
"""Has a layer of its own."""


@dataclass(frozen=True)
class Ended:
    """A program that has ended."""

    status: int
    lines: list[str]

    @property
    def message(self) -> str:
        """The last line, which is the termination message."""
        return self.lines[-1]


@asynccontextmanager
async def copying(
    reference: str, files_digest: str, volume: Path, **variables: str
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run the program; kill it at the end of the block."""
    environment = {
        "PATH": os.environ["PATH"],
        names.MODEL_IMAGE_ENV: reference,
        names.MODEL_FILES_DIGEST_ENV: files_digest,
        names.MODEL_VOLUME_ENV: str(volume),
        **variables,
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "serving.images.copying.process",
        env=environment,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def copied(reference: str, files_digest: str, volume: Path, **variables: str) -> Ended:
    """Run the program to its end."""
    async with copying(reference, files_digest, volume, **variables) as process:
        _, log = await process.communicate()
        assert process.returncode is not None
        return Ended(process.returncode, log.decode().splitlines())


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    path = tmp_path / "volume"
    path.mkdir()
    return path


@pytest.fixture
def files_digest(built: Built) -> str:
    return file_list.digest((file.path, file.digest, file.size) for file in built.files)


@pytest.fixture
def run(pushed: Pushed, files_digest: str, volume: Path) -> Callable[..., Awaitable[Ended]]:
    """Copies the pushed image into the volume."""

    async def run_copy(**variables: str) -> Ended:
        return await copied(pushed.image, files_digest, volume, **variables)

    return run_copy


def layer_of(store: ModelStore, built: Built, path: str) -> str:
    """Return the digest of the layer that has a file."""
    parsed = image.parse(store.read_manifest(built.digest))
    return next(layer.digest for layer in parsed.layers if any(f.path == path for f in layer.files or ()))


def downloads(server: RegistryServer, digest: str) -> int:
    return sum(line.startswith("GET ") and line.endswith(digest) for line in server.requests())


def on_registry(server: RegistryServer, digest: str) -> Path:
    """Return the path of a blob in the registry's storage."""
    hexadecimal = digest.removeprefix("sha256:")
    (path,) = server.data.rglob(f"sha256/{hexadecimal[:2]}/{hexadecimal}/data")
    return path


def entries(volume: Path) -> list[str]:
    return sorted(path.name for path in volume.iterdir())


def unreadable(volume: Path) -> list[Path]:
    """Return the files and directories that users of no group of theirs cannot read."""
    needed = {True: 0o005, False: 0o004}
    return [path for path in volume.rglob("*") if ~path.stat().st_mode & needed[path.is_dir()]]


async def test_a_copy_is_what_a_runtime_loads_from_an_image_volume(
    run: Callable[..., Awaitable[Ended]], files_digest: str, trained: Path, volume: Path, built: Built
) -> None:
    ended = await run()
    assert ended.status == 0, ended.lines
    for file in built.files:
        assert (volume / "models" / file.path).read_bytes() == (trained / file.path).read_bytes()
    assert entries(volume) == ["files.json", "models"]
    files = loading.ModelFiles((BIG,))
    verified = loading.verify(volume / "models", files_digest, files, is_sealed=False)
    assert verified.output.framework == "sklearn"
    verified.close()
    assert "received 0.0 of 3.2 MiB" in ended.lines[0]
    assert "copied 10 files" in ended.message


async def test_a_copy_is_readable_for_other_users_under_any_umask(
    run: Callable[..., Awaitable[Ended]], volume: Path
) -> None:
    before = os.umask(0o077)
    try:
        ended = await run()
    finally:
        os.umask(before)
    assert ended.status == 0, ended.lines
    assert unreadable(volume) == []


async def test_a_killed_copy_downloads_only_the_missing_layers_again(
    shared_registry: RegistryServer,
    run: Callable[..., Awaitable[Ended]],
    pushed: Pushed,
    store: ModelStore,
    built: Built,
    files_digest: str,
    volume: Path,
) -> None:
    small, big = layer_of(store, built, "slipway.json"), layer_of(store, built, BIG)
    models = volume / "models"
    sizes = {file.path: file.size for file in built.files if not file.path.startswith("weights/")}

    def is_in_the_middle() -> bool:
        small_is_there = all(
            (models / path).is_file() and (models / path).stat().st_size == size
            for path, size in sizes.items()
        )
        return small_is_there and (models / BIG).is_file() and (models / BIG).stat().st_size > 0

    async with FaultyProxy(shared_registry.port) as proxy:
        proxy.faults.hang_after = 600_000
        slow = pushed.image.replace(shared_registry.host, proxy.host)
        async with copying(slow, files_digest, volume) as process:
            await until(is_in_the_middle, "half of a layer is copied")
            process.send_signal(signal.SIGKILL)
    assert not (volume / "files.json").exists()
    assert (models / BIG).exists()
    ended = await run()
    assert ended.status == 0, ended.lines
    assert any("1 of 4 layers are copied already" in line for line in ended.lines)
    assert (downloads(shared_registry, small), downloads(shared_registry, big)) == (1, 2)
    loading.verify(models, files_digest, loading.ModelFiles((BIG,)), is_sealed=False).close()


async def test_a_copy_survives_connections_that_break(
    shared_registry: RegistryServer, pushed: Pushed, files_digest: str, volume: Path
) -> None:
    async with FaultyProxy(shared_registry.port) as proxy:
        proxy.faults.cut_answers_after, proxy.faults.cuts = 500_000, 2
        reference = pushed.image.replace(shared_registry.host, proxy.host)
        ended = await copied(reference, files_digest, volume)
        assert ended.status == 0, ended.lines
        assert proxy.faults.cuts == 0


async def test_a_finished_copy_needs_no_registry_when_its_container_runs_again(
    tmp_path: Path, store: ModelStore, built: Built, files_digest: str, volume: Path
) -> None:
    server = RegistryServer(tmp_path / "registry").start()
    try:
        async with Registry(Credentials.none()) as registry:
            target = Reference.parse(f"{server.host}/again/a:v1")
            reference = (await push(registry, store, built.digest, target)).image
        assert (await copied(reference, files_digest, volume)).status == 0
    finally:
        server.stop()
    ended = await copied(reference, files_digest, volume)
    assert (ended.status, len(ended.lines)) == (0, 1)
    assert "is copied already" in ended.message


async def test_a_file_that_changed_on_the_disk_is_copied_again(
    shared_registry: RegistryServer,
    run: Callable[..., Awaitable[Ended]],
    store: ModelStore,
    built: Built,
    trained: Path,
    volume: Path,
) -> None:
    assert (await run()).status == 0
    with (volume / "models" / BIG).open("r+b") as file:
        file.write(bytes(10))
    blob = on_registry(shared_registry, layer_of(store, built, BIG))
    away = blob.rename(blob.with_name("away"))
    ended = await run()
    assert (ended.status, ended.message.partition(":")[0]) == (1, "ImageNotFound")
    assert entries(volume) == ["models"], "the list says that the copy is complete"
    away.rename(blob)
    assert (await run()).status == 0
    assert (volume / "models" / BIG).read_bytes() == (trained / BIG).read_bytes()
    assert downloads(shared_registry, layer_of(store, built, BIG)) == 3
    assert downloads(shared_registry, layer_of(store, built, "slipway.json")) == 1


async def test_a_corrupt_layer_ends_the_copy_and_a_right_one_completes_it(
    shared_registry: RegistryServer,
    run: Callable[..., Awaitable[Ended]],
    store: ModelStore,
    built: Built,
    volume: Path,
) -> None:
    blob = on_registry(shared_registry, layer_of(store, built, BIG))
    right = blob.read_bytes()
    blob.write_bytes(right[:600_000] + bytes(10) + right[600_010:])
    ended = await run()
    assert ended.status == 1
    assert ended.message.startswith("DigestMismatch: "), ended.lines
    assert not (volume / "models" / BIG).exists()
    assert not (volume / "files.json").exists()
    blob.write_bytes(right)
    assert (await run()).status == 0


async def test_a_list_of_other_files_is_refused(pushed: Pushed, volume: Path, files_digest: str) -> None:
    other = file_list.digest([("a", f"sha256:{'0' * 64}", 1)])
    ended = await copied(pushed.image, other, volume)
    assert ended.status == 1
    assert ended.message.startswith("DigestMismatch: ")
    assert f"the list of its files must be {other}, got {files_digest}" in ended.message
    assert not (volume / "files.json").exists()


async def test_a_full_disk_is_the_reason_of_the_end(
    pushed: Pushed, files_digest: str, tmp_path: Path
) -> None:
    with small_file_system(tmp_path / "small", "size=2m") as small:
        ended = await copied(pushed.image, files_digest, small)
        assert ended.status == 1
        assert ended.message.startswith("DiskFull: the disk for the model's files is full"), ended.lines
        assert not (small / "files.json").exists()


async def test_a_volume_that_cannot_be_written_is_the_reason_of_the_end(
    pushed: Pushed, files_digest: str, tmp_path: Path
) -> None:
    ended = await copied(pushed.image, files_digest, tmp_path / "missing")
    assert ended.status == 1
    assert ended.message.startswith("VolumeFailed: ")


async def test_a_missing_pull_secret_is_named_when_the_registry_refuses(
    tmp_path: Path, store: ModelStore, built: Built, files_digest: str, volume: Path
) -> None:
    server = RegistryServer.with_htpasswd(tmp_path / "registry").start()
    auths = {server.host: {"auth": base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()}}
    login = json.dumps({"auths": auths}).encode()
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    variables = {names.PULL_SECRETS_ENV: "login,other", names.PULL_SECRETS_DIR_ENV: str(secrets)}
    try:
        async with Registry(Credentials.from_secret(login, "login")) as registry:
            target = Reference.parse(f"{server.host}/guarded/a:v1")
            reference = (await push(registry, store, built.digest, target)).image
        (secrets / "other").write_text(json.dumps({"auths": {"registry.example": {"auth": "YTpi"}}}))
        ended = await copied(reference, files_digest, volume, **variables)
        assert ended.status == 1
        assert ended.message.startswith(f"Unauthorized: {server.host} requires a login")
        assert ended.message.endswith("; no .dockerconfigjson in Secret login")
        (secrets / "login").write_bytes(login)
        assert (await copied(reference, files_digest, volume, **variables)).status == 0
    finally:
        server.stop()


async def test_an_invalid_pull_secret_is_named(
    pushed: Pushed, files_digest: str, volume: Path, tmp_path: Path
) -> None:
    (tmp_path / "login").write_text("no JSON")
    variables = {names.PULL_SECRETS_ENV: "login", names.PULL_SECRETS_DIR_ENV: str(tmp_path)}
    ended = await copied(pushed.image, files_digest, volume, **variables)
    assert ended.message == "InvalidCredentials: Secret login: .dockerconfigjson: must be JSON"


async def test_an_image_of_another_builder_is_copied_and_gets_its_list(
    registry: Registry, shared_registry: RegistryServer, tmp_path: Path, volume: Path
) -> None:
    content = os.urandom(100_000)
    theirs = foreign(tar_of([member("models/a", content), member("etc/b", b"1")]), compression="gzip")
    store = ModelStore(tmp_path / "theirs")
    theirs.bring(store)
    target = Reference.parse(f"{shared_registry.host}/foreign/{theirs.digest[7:19]}:v1")
    reference = (await push(registry, store, theirs.digest, target)).image
    files = store.verify(theirs.digest, deep=True)
    digest = file_list.digest((file.path, file.digest, file.size) for file in files)
    ended = await copied(reference, digest, volume)
    assert ended.status == 0, ended.lines
    assert (volume / "models" / "a").read_bytes() == content
    assert file_list.digest_of((volume / "files.json").read_bytes()) == digest
    assert not (volume / "etc").exists()


async def test_a_copy_ends_at_sigterm(
    shared_registry: RegistryServer, pushed: Pushed, files_digest: str, volume: Path
) -> None:
    async with FaultyProxy(shared_registry.port) as proxy:
        proxy.faults.hang_after = 600_000
        reference = pushed.image.replace(shared_registry.host, proxy.host)
        async with copying(reference, files_digest, volume) as process:
            await until((volume / "models" / BIG).exists, "a layer arrives")
            process.terminate()
            await asyncio.wait_for(process.communicate(), 20)
            assert process.returncode == 128 + signal.SIGTERM
    assert not (volume / "models" / BIG).exists()


async def test_a_copy_ends_at_sigterm_while_it_reads_the_files_of_an_earlier_one(volume: Path) -> None:
    endless = volume / "models" / "a"
    endless.parent.mkdir()
    os.mkfifo(endless)
    document = file_list.encode([("a", f"sha256:{'0' * 64}", 1)])
    (volume / "files.json").write_bytes(document)
    reference = f"registry.invalid/a@sha256:{'0' * 64}"
    async with copying(reference, file_list.digest_of(document), volume) as process:
        writer = await asyncio.wait_for(asyncio.to_thread(os.open, endless, os.O_WRONLY), 20)
        try:  # the copy has opened the file, and waits for its bytes
            process.terminate()
            await asyncio.wait_for(process.wait(), 20)
        finally:
            os.close(writer)
        assert process.returncode == 128 + signal.SIGTERM


async def test_a_missing_variable_is_named(volume: Path) -> None:
    ended = await copied("", "sha256:0", volume)
    assert (ended.status, ended.message) == (1, "InvalidEnvironment: SLIPWAY_MODEL_IMAGE: must be set")

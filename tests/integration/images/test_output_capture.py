"""The program of a capture pushes an output to a real registry, and reports the result or the reason."""

import asyncio
import base64
import json
import os
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml

from serving.images.building.model_image import Built
from serving.images.registry import Registry, manifests, pull
from serving.images.registry.reference import Reference
from serving.images.store.model_store import ModelStore
from serving.planning.models import capture, capture_job
from serving.resources import names
from tests.rig.control_plane.convergence import until
from tests.rig.machine.faulty_proxy import FaultyProxy
from tests.rig.machine.full_disk import small_file_system
from tests.rig.servers.registry_server import PASSWORD, USER, RegistryServer

SAMPLE = Path(__file__).parents[3] / "manifests/samples/captured-job.yaml"
STRANGER = 1_999_999_999
_AS_USER = f"""
import os, sys
from serving.images.capturing.process import main  # first: this user need not be able to read the interpreter

os.setgroups([])
os.setgid({STRANGER})
os.setuid({STRANGER})
sys.exit(main(os.environ))
"""


@dataclass(frozen=True)
class Ended:
    """A program that has ended."""

    status: int
    log: str
    message: str
    """The termination message."""

    @property
    def captured(self) -> capture.Captured:
        result = capture.decode(self.message)
        assert result is not None, self.log
        return result


@dataclass
class Container:
    """The container of a capture, each run of which is a new Pod with an empty store."""

    root: Path
    repository: str
    output: Path
    variables: dict[str, str] = field(default_factory=dict)
    is_stranger: bool = False
    """Whether the program runs as another user than that of the files."""
    runs: int = 0

    @asynccontextmanager
    async def running(self) -> AsyncIterator[asyncio.subprocess.Process]:
        """Run the program; kill it at the end of the block."""
        self.runs += 1
        store = self.root / f"store-{self.runs}"
        store.mkdir(exist_ok=True)
        self._log.write_text("")
        if self.is_stranger:
            for path in (store, self._log):
                os.chown(path, STRANGER, STRANGER)
        environment = {
            "PATH": os.environ["PATH"],
            "PYTHONDONTWRITEBYTECODE": "1",
            names.OUTPUT_VOLUME_ENV: str(self.output.parent),
            names.OUTPUT_DIR_ENV: str(self.output),
            names.CAPTURE_REPOSITORY_ENV: self.repository,
            names.CAPTURE_STORE_ENV: str(store),
            names.JOB_NAME_ENV: "train",
            names.JOB_UID_ENV: "u1",
            names.TERMINATION_LOG_ENV: str(self._log),
            **self.variables,
        }
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *(["-m", "serving.images.capturing.process"] if not self.is_stranger else ["-c", _AS_USER]),
            env=environment,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            yield process
        finally:
            if process.returncode is None:
                process.kill()
            await process.communicate()

    async def run(self) -> Ended:
        """Run the program to its end."""
        async with self.running() as process:
            _, log = await process.communicate()
            assert process.returncode is not None
            return Ended(process.returncode, log.decode(), self._log.read_text())

    @property
    def _log(self) -> Path:
        return self.root / "termination-log"


@pytest.fixture
def container(shared_registry: RegistryServer, built: Built, trained: Path, tmp_path: Path) -> Container:
    """Captures `trained` to a repository of this test."""
    return Container(tmp_path, f"{shared_registry.host}/captured/{built.digest[7:19]}", trained)


def sent(server: RegistryServer, repository: str) -> int:
    """Return the number of blobs that were uploaded to a repository."""
    path = repository.partition("/")[2]
    return sum(line.startswith(f"PUT /v2/{path}/blobs/uploads/") for line in server.requests())


async def test_an_output_is_pushed_as_the_controllers_build_it_and_reported(
    registry: Registry, container: Container, built: Built, tmp_path: Path
) -> None:
    ended = await container.run()
    assert ended.status == 0, ended.log
    assert ended.captured == (container.repository, built.digest, built.files_digest)
    assert len(ended.message) < 4096
    image = Reference.parse(f"{container.repository}@{built.digest}")
    store = ModelStore(tmp_path / "pulled")
    await pull(registry, store, image)
    assert store.verify(built.digest, deep=True) == built.files
    lineage = {key: value for fields, _ in store.referrers(built.digest) for key, value in fields.items()}
    assert lineage, "the documents about the image are pushed too"
    tagged = await manifests.find(registry, image.tagged("latest"))
    assert tagged is None, "no tag names an image that nobody has verified"


async def test_a_repeated_capture_sends_nothing_again(
    shared_registry: RegistryServer, container: Container
) -> None:
    first = await container.run()
    before = sent(shared_registry, container.repository)
    again = await container.run()
    assert (again.status, again.captured) == (0, first.captured)
    assert sent(shared_registry, container.repository) == before > 0
    assert "sent 0.0 MiB" in again.log


async def test_a_capture_that_was_killed_in_its_push_is_completed_by_the_next(
    shared_registry: RegistryServer, container: Container, built: Built
) -> None:
    repository = container.repository
    links = f"{repository.partition('/')[2]}/_layers/sha256/*/link"  # written once a blob is committed

    def is_large_blob_pushed() -> bool:  # one that the log, in tenths of a MiB, does not round to 0
        try:
            digests = {link.parent.name for link in shared_registry.data.rglob(links)}
            blobs = [blob for digest in digests for blob in shared_registry.data.rglob(f"{digest}/data")]
            return any(blob.stat().st_size > 200_000 for blob in blobs)
        except FileNotFoundError:  # an upload has ended while its folder was read
            return False

    async with FaultyProxy(shared_registry.port) as proxy:
        proxy.faults.hang_after = 1_500  # responses to about one blob by each connection
        container.repository = repository.replace(shared_registry.host, proxy.host)
        async with container.running() as process:
            await until(is_large_blob_pushed, "a blob is pushed")
            process.send_signal(signal.SIGKILL)
    container.repository = repository
    ended = await container.run()
    assert (ended.status, ended.captured.digest) == (0, built.digest)
    skipped = re.search(r"the registry had ([0-9.]+) MiB", ended.log)
    assert skipped is not None
    assert 0 < float(skipped[1]) < 3.4, ended.log


async def test_a_capture_ends_at_sigterm(shared_registry: RegistryServer, container: Container) -> None:
    async with FaultyProxy(shared_registry.port) as proxy:
        proxy.faults.silent = True
        container.repository = container.repository.replace(shared_registry.host, proxy.host)
        async with container.running() as process:
            await until(lambda: proxy.connections > 0, "the push has begun")
            process.terminate()
            await asyncio.wait_for(process.communicate(), 20)
            assert process.returncode == 128 + signal.SIGTERM


async def test_an_output_that_can_never_be_captured_ends_with_the_status_that_fails_the_job(
    container: Container, trained: Path
) -> None:
    (trained / "link").symlink_to("/etc/passwd")
    ended = await container.run()
    assert (ended.status, ended.message) == (
        capture_job.REFUSED,
        "InvalidOutput: 'link': is a symbolic link; write the file itself",
    )
    assert ended.log.splitlines()[-1] == ended.message


async def test_a_link_out_of_the_volume_is_not_followed(container: Container, tmp_path: Path) -> None:
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    (secrets / "login").write_text("password")
    (tmp_path / "volume").mkdir()
    (tmp_path / "volume" / "model").symlink_to(tmp_path)
    container.output = tmp_path / "volume" / "model" / "secrets"
    container.variables = {names.OUTPUT_VOLUME_ENV: str(tmp_path / "volume")}
    ended = await container.run()
    assert ended.status == capture_job.REFUSED
    assert ended.message.startswith("InvalidOutput: "), ended.log


async def test_a_framework_that_contradicts_the_output_is_refused(container: Container) -> None:
    container.variables = {names.CAPTURE_FRAMEWORK_ENV: "pytorch"}
    ended = await container.run()
    assert ended.status == capture_job.REFUSED
    assert ended.message.startswith("InvalidManifest: slipway.json: framework: must be the ModelVersion's")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
async def test_an_output_that_the_user_may_not_read_is_said_and_tried_again(
    container: Container, trained: Path
) -> None:
    with tempfile.TemporaryDirectory(prefix="slipway-test-") as public:
        container.root, container.output = Path(public), Path(public) / "output" / "model"
        container.root.chmod(0o755)
        shutil.copytree(trained, container.output)
        (container.output / "slipway.json").chmod(0o600)
        container.is_stranger = True
        ended = await container.run()
        assert ended.status == 1, ended.log
        assert ended.message.startswith("OutputNotReadable: slipway.json: user 1999999999 "), ended.log
        (container.output / "slipway.json").chmod(0o644)
        assert (await container.run()).status == 0


async def test_the_container_of_the_sample_captures_what_its_init_container_has_written(
    container: Container, built: Built
) -> None:
    job = next(body for body in yaml.safe_load_all(SAMPLE.read_text()) if body["kind"] == "Job")
    spec = job["spec"]["template"]["spec"]
    (training,), (capturing,) = spec["initContainers"], spec["containers"]
    assert capturing["command"][1:] == ["-m", "serving.images.capturing.process"]
    written, read = ({e["name"]: e.get("value", "") for e in c["env"]} for c in (training, capturing))
    assert written[names.OUTPUT_DIR_ENV] == read[names.OUTPUT_DIR_ENV]
    assert read.pop(names.CAPTURE_REPOSITORY_ENV) == "registry.example.com/models/digits"
    replaced = {read.pop(names.OUTPUT_VOLUME_ENV), read.pop(names.CAPTURE_STORE_ENV)}
    assert replaced == {mount["mountPath"] for mount in capturing["volumeMounts"][:2]}
    del read[names.OUTPUT_DIR_ENV]
    container.variables = read
    ended = await container.run()
    assert (ended.status, ended.captured.digest) == (0, built.digest), ended.log


async def test_a_refused_login_names_the_secret_and_fails_the_job_until_it_is_there(
    container: Container, tmp_path: Path
) -> None:
    server = RegistryServer.with_htpasswd(tmp_path / "registry").start()
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    container.repository = f"{server.host}/guarded/a"
    container.variables = {names.PULL_SECRETS_ENV: "login", names.PULL_SECRETS_DIR_ENV: str(secrets)}
    try:
        ended = await container.run()
        assert ended.status == capture_job.REFUSED
        assert ended.message.startswith(f"Unauthorized: {server.host} requires a login"), ended.log
        assert ended.message.endswith("; no .dockerconfigjson in Secret login")
        auths = {server.host: {"auth": base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()}}
        (secrets / "login").write_text(json.dumps({"auths": auths}))
        assert (await container.run()).status == 0
    finally:
        server.stop()


async def test_a_full_disk_is_the_reason_of_the_end(container: Container, tmp_path: Path) -> None:
    with small_file_system(tmp_path / "store-1", "size=2m"):
        ended = await container.run()
    assert ended.status == 1
    assert ended.message.startswith("DiskFull: "), ended.log


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({names.OUTPUT_VOLUME_ENV: ""}, "InvalidEnvironment: SLIPWAY_OUTPUT_VOLUME: must be set"),
        (
            {names.CAPTURE_COMPRESSION_ENV: "gzip"},
            "InvalidEnvironment: SLIPWAY_CAPTURE_COMPRESSION: must be none or zstd, not 'gzip'",
        ),
    ],
)
async def test_a_wrong_variable_is_named(
    container: Container, variables: dict[str, str], message: str
) -> None:
    container.variables = variables
    ended = await container.run()
    assert (ended.status, ended.message) == (capture_job.REFUSED, message)

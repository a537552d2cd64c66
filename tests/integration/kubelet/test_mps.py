"""Containers with a GPU: the MPS daemon is started once, and a Pod reports a missing GPU."""

import asyncio
import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from serving import errors
from serving.data_dir import DataDir
from serving.embedded.kubelet.devices import mps
from serving.embedded.kubelet.devices.mps import Mps
from serving.embedded.pod_spec import gpu_limits
from serving.kube import Kube, connect
from serving.resources import kinds
from tests.programs import mps_control
from tests.rig.servers import node_process
from tests.rig.servers.node_process import agent, log_of, main_status, phase, pod, until

NAMESPACE = "default"
LIMITS = {"limits": {"nvidia.com/gpu": "1"}}
SHOWN = """
import os
pipes = os.environ["CUDA_MPS_PIPE_DIRECTORY"]
print(open(pipes + "/control").read().split())
open("/dev/shm/slipway-test-mps", "w").close()
"""


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that every user can enter, as /tmp."""
    directory = Path(tempfile.mkdtemp(prefix="slipway-test-mps-"))
    directory.chmod(0o755)
    yield directory
    shutil.rmtree(directory)


@pytest.fixture
def machine(place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with a GPU and the daemon's program; returns its /dev."""
    mps_control.install(place / "bin")
    monkeypatch.setenv("PATH", f"{place / 'bin'}:{os.environ['PATH']}")
    (place / "nvidia0").touch()
    return place


def test_mps_daemon_is_started_once_and_found_by_another_agent(machine: Path) -> None:
    directory = machine / "mps"
    for _ in range(2):
        access = Mps(directory, None, machine).access()
        assert access.env == {"CUDA_MPS_PIPE_DIRECTORY": str(directory / "pipe")}
        assert access.mounts == ()
    assert (directory / "pipe" / "control").read_text().split() == [str(os.geteuid()), "0"]
    assert (directory / "log" / "control.log").read_text() == "started\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_mps_daemon_runs_as_the_user_of_the_containers(machine: Path) -> None:
    access = Mps(machine / "mps", 65534, machine).access()
    assert (machine / "mps" / "pipe" / "control").read_text().split()[0] == "65534"
    assert access.env == {"CUDA_MPS_PIPE_DIRECTORY": gpu_limits.PIPES}
    assert {mount.target for mount in access.mounts} == {gpu_limits.PIPES, "/dev/shm"}
    with pytest.raises(errors.Temporary, match="is another user's: remove it"):
        Mps(machine / "mps", None, machine).access()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_mps_daemon_starts_where_an_agent_ended_after_it_had_made_the_directory(machine: Path) -> None:
    (machine / "mps").mkdir(mode=0o700)
    Mps(machine / "mps", 65534, machine).access()
    assert (machine / "mps" / "pipe" / "control").read_text().split()[0] == "65534"


def test_message_has_the_daemons_error_when_it_does_not_start(machine: Path) -> None:
    mps_control.install(machine / "bin", "#!/bin/sh\necho 'no permission' >&2\nexit 1\n")
    with pytest.raises(errors.Temporary, match="did not start: no permission") as caught:
        Mps(machine / "mps", None, machine).access()
    assert caught.value.reason == "NoMps"


def test_message_names_the_daemon_when_it_is_not_installed(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(machine / "nothing"))
    with pytest.raises(errors.Temporary, match="nvidia-cuda-mps-control is not installed") as caught:
        Mps(machine / "mps", None, machine).access()
    assert caught.value.reason == "NoMps"


def test_daemon_is_not_started_when_there_is_no_gpu(place: Path) -> None:
    with pytest.raises(errors.Temporary, match="this machine has no NVIDIA GPU") as caught:
        Mps(place / "mps", None, place).access()
    assert caught.value.reason == "NoGpu"
    assert not (place / "mps").exists()


def test_mps_daemon_ends_with_slipway_down(
    machine: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    data_dir = DataDir(tmp_path / "data")
    monkeypatch.setattr(tempfile, "tempdir", str(machine))
    mps.end(data_dir)
    Mps(mps.directory_of(data_dir), None, machine).access()
    control = mps.directory_of(data_dir) / "pipe" / "control"
    assert control.exists()
    mps.end(data_dir)
    assert not control.exists()


@contextlib.asynccontextmanager
async def _api(data_dir: DataDir) -> AsyncIterator[Kube]:
    async with await connect(data_dir.kubeconfig, component="test") as kube:
        yield kube


def _on_gpu(name: str, **more: Any) -> dict[str, Any]:
    return pod(NAMESPACE, name, SHOWN, resources=LIMITS, spec_restartPolicy="Never", **more)


async def _waiting(kube: Kube, name: str) -> dict[str, str]:
    def has_reason(stored: dict[str, Any]) -> bool:
        return "message" in main_status(stored).get("state", {}).get("waiting", {})

    waiting: dict[str, str] = main_status(await until(kube, NAMESPACE, name, has_reason))["state"]["waiting"]
    return waiting


async def _event(kube: Kube, name: str, reason: str) -> str:
    """Poll for an Event of a Pod; returns its type."""
    deadline = time.monotonic() + 15
    while time.monotonic() < deadline:
        events = await kube.list(
            kinds.EVENT_V1, NAMESPACE, fields=f"involvedObject.name={name},reason={reason}"
        )
        if events.items:
            return str(events.items[0]["type"])
        await asyncio.sleep(0.05)
    raise AssertionError(f"no Event {reason} of {name}")


@pytest.mark.skipif(Path("/dev/nvidia0").exists(), reason="this machine has an NVIDIA GPU")
def test_pod_waits_with_a_reason_when_there_is_no_gpu(api_server: DataDir) -> None:
    async def run() -> None:
        async with _api(api_server) as kube:
            await kube.create(kinds.POD, _on_gpu("gpuless"))
            waiting = await _waiting(kube, "gpuless")
            assert waiting["reason"] == "NoGpu"
            assert "this machine has no NVIDIA GPU" in waiting["message"]
            assert await _event(kube, "gpuless", "NoGpu") == "Warning"

    with agent(api_server, NAMESPACE, "executed"):
        asyncio.run(run())


def _run_with_device(root: Path) -> None:
    mps.DEVICE = "null"  # /dev/null stands for the GPU
    node_process.run(root)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_container_reaches_the_mps_daemon_in_its_private_view(
    api_server: DataDir, machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_process, "run", _run_with_device)
    monkeypatch.setenv("TMPDIR", str(machine))
    shared = Path("/dev/shm/slipway-test-mps")

    async def run() -> None:
        async with _api(api_server) as kube:
            await kube.create(kinds.POD, _on_gpu("client"))
            stored = await until(kube, NAMESPACE, "client", phase("Succeeded"))
            assert log_of(api_server, stored) == "['65534', 'null']\n"

    try:
        with agent(api_server, NAMESPACE, "forked"):
            asyncio.run(run())
        assert shared.exists(), "clients and daemon meet in the machine's shared memory"
    finally:
        shared.unlink(missing_ok=True)

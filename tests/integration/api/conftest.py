"""Fixtures: an HTTP client, a new namespace, a separate server, and kubectl."""

import signal
import uuid
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.objects.config_maps import MAPS
from tests.rig.control_plane.kubectl import Kubectl
from tests.rig.servers.api_process import ApiProcess


@pytest.fixture
def client(api_process: ApiProcess) -> Iterator[httpx.Client]:
    with api_process.http() as client:
        yield client


@pytest.fixture
def maps(client: httpx.Client) -> Iterator[str]:
    name = f"t-{uuid.uuid4().hex[:8]}"
    created = client.post(
        "/api/v1/namespaces", json={"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    )
    assert created.status_code == 201, created.text
    yield MAPS.format(name)
    client.delete(f"/api/v1/namespaces/{name}")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ApiProcess]:
    server = ApiProcess(tmp_path / "data", watch_history=50)
    server.start()
    yield server
    server.stop(signal.SIGKILL)


@pytest.fixture
def kubectl(api_process: ApiProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    home = tmp_path_factory.getbasetemp() / "home"
    home.mkdir(exist_ok=True)
    space = Kubectl(api_process.data_dir.kubeconfig, home, f"k-{uuid.uuid4().hex[:8]}")
    space(
        "apply",
        "-f",
        "-",
        stdin=f"apiVersion: v1\nkind: Namespace\nmetadata: {{name: {space.namespace}}}\n",
    )
    yield space
    space("delete", "namespace", space.namespace, "--wait=false")

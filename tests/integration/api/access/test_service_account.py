"""A component in a Pod of a cluster connects with the service account that the kubelet mounts."""

import base64
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml

from serving.data_dir import DataDir
from serving.kube import connect_eventually
from serving.kube.connection import client
from serving.resources import kinds


@pytest.fixture
def service_account(api_server: DataDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files and variables that a Pod has, with the embedded server as its cluster."""
    kubeconfig = yaml.safe_load(api_server.kubeconfig.read_text())
    cluster, user = kubeconfig["clusters"][0]["cluster"], kubeconfig["users"][0]["user"]
    for name, content in (
        ("_TOKEN", user["token"].encode()),
        ("_AUTHORITY", base64.b64decode(cluster["certificate-authority-data"])),
    ):
        path = tmp_path / name
        path.write_bytes(content)
        monkeypatch.setattr(client, name, path)
    server = urlsplit(cluster["server"])
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", str(server.hostname))
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(server.port))


@pytest.mark.usefixtures("service_account")
async def test_component_without_a_kubeconfig_uses_its_service_account(tmp_path: Path) -> None:
    async with await connect_eventually(tmp_path / "absent", component="test") as kube:
        assert (await kube.get(kinds.NAMESPACE, None, "default"))["metadata"]["name"] == "default"


@pytest.mark.usefixtures("service_account")
async def test_kubeconfig_of_the_data_directory_comes_before_the_service_account(
    api_server: DataDir, tmp_path: Path
) -> None:
    client._TOKEN.write_text("another")
    async with await connect_eventually(api_server.kubeconfig, component="test") as kube:
        assert (await kube.list(kinds.NAMESPACE)).items

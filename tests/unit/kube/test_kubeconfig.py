"""Kubeconfigs: their certificate authority is never in a file of the temporary directory."""

import base64
import json
import tempfile
from pathlib import Path

import pytest

from serving import errors
from serving.data_dir import DataDir
from serving.kube import connect
from serving.kube.connection.client import Configuration
from serving.kube.connection.kubeconfig import load

PEM = "-----BEGIN CERTIFICATE-----\nabc\n-----END CERTIFICATE-----\n"


def written(path: Path, **cluster: str) -> Path:
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "clusters": [{"name": "k", "cluster": {"server": "https://127.0.0.1:1", **cluster}}],
        "users": [{"name": "u", "user": {"token": "secret"}}],
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
    }
    path.write_text(json.dumps(document))
    return path


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = tmp_path / "temporary"
    directory.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(directory))
    return directory


def files(directory: Path) -> list[Path]:
    return list(directory.iterdir())


async def test_authority_in_data_is_in_no_file(tmp_path: Path, temporary: Path) -> None:
    data = base64.b64encode(PEM.encode()).decode()
    configuration = Configuration()
    await load(configuration, written(tmp_path / "config", **{"certificate-authority-data": data}))
    assert configuration.ca_cert_data == PEM
    assert configuration.ssl_ca_cert is None
    assert files(temporary) == []


async def test_authority_in_a_file_is_relative_to_the_kubeconfig(tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_text(PEM)
    configuration = Configuration()
    await load(configuration, written(tmp_path / "config", **{"certificate-authority": "ca.crt"}))
    assert configuration.ssl_ca_cert == str(tmp_path / "ca.crt")


async def test_damaged_authority_is_an_error_with_its_field(tmp_path: Path) -> None:
    path = written(tmp_path / "config", **{"certificate-authority-data": "%"})
    with pytest.raises(errors.UserError, match="certificate-authority-data"):
        await connect(path, component="test")


async def test_client_of_the_embedded_api_leaves_no_file(api_server: DataDir, temporary: Path) -> None:
    async with await connect(api_server.kubeconfig, component="test") as kube:
        assert await kube.raw("/healthz") == b"ok"
    assert files(temporary) == []

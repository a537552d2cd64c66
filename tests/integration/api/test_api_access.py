"""Who may ask, and who may read the files that say so."""

import stat

import pytest

from tests.rig.api_process import ApiProcess


@pytest.mark.parametrize("token", ["x", "wrong", "é"])
def test_without_the_token_everything_but_health_is_401(api_process: ApiProcess, token: str) -> None:
    with api_process.http(token="x") as client:
        header = {"Authorization": f"Bearer {token}".encode()}
        for path in ("/api", "/version", "/openapi/v3", "/api/v1/pods", "/nowhere"):
            answer = client.get(path, headers=header)
            assert answer.status_code == 401
            assert answer.json()["reason"] == "Unauthorized"
        assert client.get("/healthz", headers=header).text == "ok"


def test_secrets_are_readable_by_the_owner_alone(api_process: ApiProcess) -> None:
    data = api_process.data_dir
    for path in (data.kubeconfig, data.token, data.database, *data.tls.iterdir()):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    assert stat.S_IMODE(data.root.stat().st_mode) == 0o700

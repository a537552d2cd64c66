"""Access by the token, and permissions of secret files."""

import stat

import pytest

from tests.rig.servers.api_process import ApiProcess


@pytest.mark.parametrize("token", ["x", "wrong", "é"])
def test_requests_without_the_token_get_401_except_health_checks(api_process: ApiProcess, token: str) -> None:
    with api_process.http(token="x") as client:
        header = {"Authorization": f"Bearer {token}".encode()}
        for path in ("/api", "/version", "/openapi/v3", "/api/v1/pods", "/nowhere"):
            response = client.get(path, headers=header)
            assert response.status_code == 401
            assert response.json()["reason"] == "Unauthorized"
        assert client.get("/healthz", headers=header).text == "ok"


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
def test_scheme_of_the_token_has_any_case(api_process: ApiProcess, scheme: str) -> None:
    secret = api_process.data_dir.token.read_text().strip()
    with api_process.http(token="x") as client:
        for header, status in (
            (f"{scheme} {secret}", 200),
            (f"{scheme}{secret}", 401),
            (f"Basic {secret}", 401),
        ):
            assert client.get("/version", headers={"Authorization": header}).status_code == status


def test_secret_files_are_readable_by_the_owner_only(api_process: ApiProcess) -> None:
    data = api_process.data_dir
    for path in (data.kubeconfig, data.token, data.database, *data.tls.iterdir()):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    assert stat.S_IMODE(data.root.stat().st_mode) == 0o700

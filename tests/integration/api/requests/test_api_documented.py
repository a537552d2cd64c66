"""Every operation of `/openapi/v3` of Slipway's kinds gets a documented response, checked by schemathesis.

Built-in kinds would take ten times as long; their documents are built likewise, and `test_api_fuzz` covers
their requests.
"""

from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import given
from schemathesis.core import NotSet

from tests.rig import fuzzing

EXPECTED_CODES = {
    "GET": {200, 404},
    "POST": {201, 400, 409, 422},
    "PUT": {200, 400, 404, 409, 422},
    "DELETE": {200, 404, 405},
    "PATCH": {200, 400, 404, 409, 415, 422},
}


@pytest.mark.hypothesis
@pytest.mark.parametrize("group_version", ["apis/slipway.dev/v1alpha1", "apis/discovery.k8s.io/v1"])
def test_every_documented_operation_is_answered(client: httpx.Client, maps: str, group_version: str) -> None:
    document = client.get(f"/openapi/v3/{group_version}").json()
    operations = [result.ok() for result in schemathesis.openapi.from_dict(document).get_all_operations()]
    assert operations
    for operation in operations:
        _check_operation(client, maps.split("/")[4], operation)


def _check_operation(client: httpx.Client, namespace: str, operation: Any) -> None:
    parameters = {"namespace": namespace, "name": "documented"}

    @fuzzing.fuzzed(2)
    @given(case=operation.as_strategy())
    def check_response(case: Any) -> None:
        path = operation.path.format(**parameters)
        body = {} if isinstance(case.body, NotSet) else {"json": case.body}
        media = {"Content-Type": case.media_type} if case.media_type else {}
        query = {name: str(value) for name, value in (case.query or {}).items()}
        response = client.request(case.method, path, params=query, headers=media, **body)
        assert response.status_code in EXPECTED_CODES[case.method.upper()], (
            case.method,
            path,
            case.body,
            response.text,
        )
        kind = response.json()["kind"]
        if response.status_code >= 400:
            assert kind == "Status"
        elif case.method.upper() == "GET":
            assert kind.endswith("List") == ("{name}" not in operation.path)

    check_response()

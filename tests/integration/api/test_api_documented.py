"""What `/openapi/v3` says can be sent is answered as it says: schemathesis on every operation of our kinds.

The documents of built-in kinds are made in the same way, and take it ten times as long; `test_api_fuzz` writes those too.
"""

from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import given
from schemathesis.core import NotSet

from tests.rig import fuzzing

ANSWERS = {
    "GET": {200, 404}, "POST": {201, 400, 409, 422}, "PUT": {200, 400, 404, 409, 422}, "DELETE": {200, 404, 405},
    "PATCH": {200, 400, 404, 409, 415, 422},
}  # fmt: skip


@pytest.mark.parametrize("group_version", ["apis/slipway.dev/v1alpha1", "apis/discovery.k8s.io/v1"])
def test_every_documented_operation_is_answered(client: httpx.Client, maps: str, group_version: str) -> None:
    document = client.get(f"/openapi/v3/{group_version}").json()
    operations = [found.ok() for found in schemathesis.openapi.from_dict(document).get_all_operations()]
    assert operations
    for operation in operations:
        _ask(client, maps.split("/")[4], operation)


def _ask(client: httpx.Client, namespace: str, operation: Any) -> None:
    places = {"namespace": namespace, "name": "documented"}

    @fuzzing.fuzzed(2)
    @given(case=operation.as_strategy())
    def answered(case: Any) -> None:
        path = operation.path.format(**places)
        body = {} if isinstance(case.body, NotSet) else {"json": case.body}
        media = {"Content-Type": case.media_type} if case.media_type else {}
        query = {name: str(value) for name, value in (case.query or {}).items()}
        answer = client.request(case.method, path, params=query, headers=media, **body)
        assert answer.status_code in ANSWERS[case.method.upper()], (case.method, path, case.body, answer.text)
        kind = answer.json()["kind"]
        if answer.status_code >= 400:
            assert kind == "Status"
        elif case.method.upper() == "GET":
            assert kind.endswith("List") == ("{name}" not in operation.path)

    answered()

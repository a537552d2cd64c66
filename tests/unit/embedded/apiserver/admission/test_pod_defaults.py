"""The defaults of Pods and templates of Pods."""

import pytest

from serving.embedded.apiserver.admission import pod
from serving.objects import Object


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"serviceAccountName": "a"}, {"serviceAccountName": "a", "serviceAccount": "a"}),
        ({"serviceAccount": "b"}, {"serviceAccountName": "b", "serviceAccount": "b"}),
        ({"serviceAccountName": ""}, {"serviceAccountName": ""}),
        ({}, {}),
    ],
)
def test_service_account_has_both_names_when_one_is_set(given: Object, expected: Object) -> None:
    spec = dict(given)
    pod.spec_defaults(spec)
    assert {name: value for name, value in spec.items() if name.startswith("serviceAccount")} == expected

"""Bodies of registries, whose content can be anything."""

import pytest

from serving.images.documents import oci
from serving.images.registry import responses


@pytest.mark.parametrize(
    ("body", "document"),
    [
        (b'{"a": "\\ud83d\\ude00"}', {"a": "\U0001f600"}),
        (b'{"a": [{"b": "\\ud800"}]}', {}),
        (b'{"\\udfff": 1}', {}),
        (b'{"a": "\xed\xa0\x80"}', {}),
        (b"[1]", {}),
        (b"{", {}),
    ],
    ids=["pair", "lone value", "lone key", "surrogate bytes", "array", "no JSON"],
)
def test_json_object_of_a_body_can_be_encoded_when_it_has_surrogates(
    body: bytes, document: dict[str, str]
) -> None:
    assert responses.json_object(body) == document
    oci.encode(responses.json_object(body))

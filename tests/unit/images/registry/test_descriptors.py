"""Descriptors in documents of a registry are validated before they are used."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving import errors
from serving.images.documents.image import Blob
from serving.images.registry import descriptors

DIGEST = "sha256:" + "0a" * 32
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.just(DIGEST),
    lambda x: st.lists(x, max_size=3) | st.dictionaries(st.sampled_from(["digest", "size", "x"]), x),
    max_leaves=6,
)


def test_descriptor_is_read_as_digest_and_size() -> None:
    assert descriptors.blob({"digest": DIGEST, "size": 7, "mediaType": "x"}) == Blob(DIGEST, 7)


@pytest.mark.parametrize(
    "descriptor",
    [
        None,
        [],
        {},
        {"digest": DIGEST},
        {"digest": DIGEST, "size": -1},
        {"digest": DIGEST, "size": True},
        {"digest": "sha256:../../x", "size": 1},
        {"digest": DIGEST + "/", "size": 1},
        {"digest": 1, "size": 1},
    ],
)
def test_malformed_descriptor_is_refused(descriptor: Any) -> None:
    with pytest.raises(errors.Permanent) as raised:
        descriptors.blob(descriptor)
    assert raised.value.reason == "InvalidImage"


@given(st.dictionaries(st.sampled_from(["config", "layers", "manifests", "subject"]), JSON))
def test_any_document_is_read_or_refused(document: dict[str, Any]) -> None:
    assert all(entry["digest"] == DIGEST for entry in descriptors.entries_of(document))
    descriptors.mapping(document, "subject")
    try:
        blobs = descriptors.blobs_of(document)
    except errors.Permanent as error:
        if error.reason != "InvalidImage":
            raise
    else:
        assert all(blob.digest == DIGEST and blob.size >= 0 for blob in blobs)

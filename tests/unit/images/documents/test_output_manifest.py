"""slipway.json: every broken rule is named with its field and value."""

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving import errors
from serving.images.documents import output_manifest


def test_every_field_is_read() -> None:
    document = {
        "framework": "sklearn",
        "metrics": {"accuracy": 0.97, "images": 12},
        "sourceRevision": "4f2a9c1",
        "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 4]}],
    }
    assert output_manifest.parse(json.dumps(document).encode()) == output_manifest.OutputManifest(
        "sklearn",
        {"accuracy": 0.97, "images": 12.0},
        "4f2a9c1",
        (output_manifest.Input("x", "FP32", (-1, 4)),),
    )


def test_empty_object_is_an_empty_manifest() -> None:
    assert output_manifest.parse(b"{}") == output_manifest.OutputManifest()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "must be an object, got []"),
        ("{", "must be JSON"),
        ('{"a": 1, "a": 2}', "duplicate field 'a'"),
        ('{"metric": {}}', "slipway.json: metric: is not known; known are framework, metrics"),
        ('{"framework": "Scikit Learn"}', "slipway.json: framework: must be a string matching"),
        ('{"framework": 3}', "got 3"),
        ('{"metrics": {"accuracy": "good"}}', "metrics['accuracy']: must be a finite number, got 'good'"),
        ('{"metrics": {"accuracy": NaN}}', "metrics['accuracy']: must be a finite number, got nan"),
        ('{"metrics": {"ok": true}}', "metrics['ok']: must be a finite number, got True"),
        ('{"metrics": {"n": 1%s}}' % ("0" * 400), "metrics['n']: must be a finite number"),
        ('{"metrics": {"a b": 1}}', "name must match"),
        ('{"sourceRevision": 7}', "sourceRevision: must be a printable string"),
        ('{"inputs": [{"name": "x"}]}', "inputs[0]: must have exactly name, datatype and shape"),
        (
            '{"inputs": [{"name": "x", "datatype": "FLOAT", "shape": [-1]}]}',
            "inputs[0].datatype: must be one of",
        ),
        ('{"inputs": [{"name": "x", "datatype": "FP32", "shape": [4]}]}', "inputs[0].shape: must be"),
        ('{"inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 0]}]}', "inputs[0].shape: must be"),
    ],
)
def test_a_broken_rule_is_named_with_field_and_value(text: str, message: str) -> None:
    with pytest.raises(errors.Permanent) as caught:
        output_manifest.parse(text.encode())
    assert caught.value.reason == "InvalidManifest"
    assert message in str(caught.value)


def test_oversized_manifest_is_refused_before_it_is_parsed() -> None:
    with pytest.raises(errors.Permanent, match="at most"):
        output_manifest.parse(b" " * (output_manifest.MAX_BYTES + 1))


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
)
FIELDS = st.sampled_from(["framework", "metrics", "sourceRevision", "inputs", "other"])


@given(
    st.dictionaries(FIELDS, JSON, max_size=4).map(lambda d: json.dumps(d).encode()) | st.binary(max_size=40)
)
def test_any_bytes_are_parsed_or_refused_as_permanent(data: bytes) -> None:
    with contextlib.suppress(errors.Permanent):
        output_manifest.parse(data)

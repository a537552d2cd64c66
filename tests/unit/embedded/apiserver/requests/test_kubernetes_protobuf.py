"""Kubernetes' protobuf form: hand-made messages, the field table against the schemas, random bytes."""

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving import errors
from serving.embedded.apiserver.requests import kubernetes_protobuf
from serving.embedded.apiserver.schema import schemas
from serving.resources import kinds


def varint(number: int) -> bytes:
    encoded = bytearray()
    number &= (1 << 64) - 1
    while number >= 0x80:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*encoded, number])


def field(number: int, value: int | str | bytes) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    content = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(content)) + content


def body(kind: str, message: bytes, version: str = "v1") -> bytes:
    return kubernetes_protobuf.MAGIC + field(1, field(1, version) + field(2, kind)) + field(2, message)


def meta(name: str) -> bytes:
    empty = b"".join(field(number, "") for number in (2, 3, 4, 5, 6))
    return field(1, field(1, name) + empty + field(7, 0) + field(8, b""))


def entry(key: str, value: str | bytes) -> bytes:
    return field(1, key) + field(2, value)


def test_zeros_that_go_always_sends_are_dropped_and_maps_and_bytes_are_decoded() -> None:
    message = meta("c") + field(2, entry("a", "b")) + field(2, entry("e", "")) + field(3, entry("f", b"\xff"))
    assert kubernetes_protobuf.decode(body("ConfigMap", message), "ConfigMap") == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "c"},
        "data": {"a": "b", "e": ""},
        "binaryData": {"f": "/w=="},
    }


def test_a_zero_of_an_optional_field_is_kept() -> None:
    spec = field(1, 0) + field(5, 0)
    decoded = kubernetes_protobuf.decode(
        body("Deployment", meta("d") + field(2, spec), "apps/v1"), "Deployment"
    )
    assert decoded["spec"] == {"replicas": 0}


def test_inlined_messages_and_scalars_with_their_own_json_form_are_decoded() -> None:
    quantity = field(1, entry("cpu", field(1, "100m")))
    http = field(1, "/ready") + field(2, field(1, 1) + field(3, "http"))
    probe = field(1, field(2, http)) + field(2, 0) + field(3, 5)
    container = field(1, "main") + field(8, quantity) + field(11, probe)
    volume = field(1, "v") + field(2, field(2, b""))
    spec = field(1, volume) + field(2, container) + field(5, -1) + field(7, entry("a", "b"))
    status = field(7, field(1, 1_700_000_000))
    decoded = kubernetes_protobuf.decode(body("Pod", meta("p") + field(2, spec) + field(3, status)), "Pod")
    assert decoded["spec"] == {
        "volumes": [{"name": "v", "emptyDir": {}}],
        "containers": [
            {
                "name": "main",
                "resources": {"limits": {"cpu": "100m"}},
                "readinessProbe": {"httpGet": {"path": "/ready", "port": "http"}, "timeoutSeconds": 5},
            }
        ],
        "activeDeadlineSeconds": -1,
        "nodeSelector": {"a": "b"},
    }
    assert decoded["status"] == {"startTime": "2023-11-14T22:13:20Z"}


def test_delete_options_are_decoded() -> None:
    preconditions = field(2, field(1, "uid-1"))
    message = field(1, 0) + preconditions + field(4, "Foreground") + field(5, "All")
    assert kubernetes_protobuf.decode(body("DeleteOptions", message), "DeleteOptions") == {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "gracePeriodSeconds": 0,
        "preconditions": {"uid": "uid-1"},
        "propagationPolicy": "Foreground",
        "dryRun": ["All"],
    }


def test_micro_times_and_field_sets_are_decoded() -> None:
    spec = field(1, "me") + field(3, field(1, 1) + field(2, 500_000_000))
    owned = field(17, field(1, "m") + field(7, field(1, b'{"f:spec":{}}')))
    decoded = kubernetes_protobuf.decode(body("Lease", field(1, owned) + field(2, spec)), "Lease")
    assert decoded["spec"] == {"holderIdentity": "me", "acquireTime": "1970-01-01T00:00:01.500000Z"}
    assert decoded["metadata"]["managedFields"] == [{"manager": "m", "fieldsV1": {"f:spec": {}}}]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"{}", "does not begin"),
        (body("Secret", b""), "'Secret'"),
        (body("ConfigMap", field(1, 5)), "a number stands where"),
        (body("ConfigMap", b"\x0a\x05ab"), "ends early"),
        (body("ConfigMap", b"\x0a"), "ends early"),
        (body("ConfigMap", b"\x80" * 11), "more than ten bytes"),
        (body("ConfigMap", b"\x0b"), "wire type 3"),
        (body("ConfigMap", field(1, field(1, b"\xff"))), "utf-8"),
        (body("ConfigMap", field(99, "x")), "ConfigMap has a field of number 99"),
        (body("ConfigMap", field(1, field(8, field(1, 1 << 62)))), "protobuf"),
        (body("ConfigMap", b"") + field(3, "gzip"), "encoded once more"),
    ],
)
def test_malformed_messages_are_refused_with_the_reason(data: bytes, reason: str) -> None:
    with pytest.raises(errors.ApiError, match=reason) as refused:
        kubernetes_protobuf.decode(data, "ConfigMap")
    assert refused.value.code == 400


def test_an_unknown_field_that_is_zero_is_ignored() -> None:
    assert kubernetes_protobuf.decode(
        body("ConfigMap", meta("c") + field(99, 0) + field(98, "")), "ConfigMap"
    )


@given(kind=st.sampled_from([kind.kind for kind in kinds.BUILTIN]), message=st.binary(max_size=60))
def test_random_bytes_are_refused_or_decoded(kind: str, message: bytes) -> None:
    with contextlib.suppress(errors.ApiError):
        json.dumps(kubernetes_protobuf.decode(body(kind, message), kind))


def test_the_table_has_the_fields_of_the_schemas() -> None:
    definitions = schemas.builtin()["definitions"]

    def properties(message: str) -> set[str]:
        below = (
            {name} if name else properties(type_.lstrip("*"))
            for name, type_ in kubernetes_protobuf.table()[message].values()
        )
        return set().union(*below)

    def known(definition: dict[str, Any]) -> set[str]:
        return set(definition["properties"]) - {"apiVersion", "kind"}

    for name in kubernetes_protobuf.table().keys() & definitions.keys():
        assert properties(name) - {"apiVersion", "kind"} == known(definitions[name]), name
    assert {kind.kind for kind in kinds.BUILTIN} <= kubernetes_protobuf.table().keys()

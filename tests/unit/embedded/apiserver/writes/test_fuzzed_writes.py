"""Any write succeeds or is refused with an API error, and every stored object can be rendered."""

from datetime import UTC, datetime
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving import errors
from serving.embedded.apiserver.tables import tables
from serving.embedded.apiserver.writes import scale, write_path
from serving.resources import kinds
from serving.resources.kinds import Kind
from tests.objects.stored_kinds import STORED_KINDS
from tests.objects.strategies import good, json_patches, objects, odd, strategic_patches, values
from tests.objects.write_requests import create, request
from tests.rig import fuzzing

NOW = datetime(2026, 1, 2, tzinfo=UTC)
fuzzed = fuzzing.fuzzed(20)
every_kind = pytest.mark.parametrize("kind", kinds.ALL, ids=lambda kind: kind.kind)


def outcome(write: Any) -> Any:
    try:
        return write()
    except errors.ApiError as error:
        return error


def check_write(kind: Kind, write: Any) -> None:
    result = outcome(write)
    if isinstance(result, errors.ApiError):
        assert 400 <= result.code < 500
        assert result.message
        assert all(cause.field or cause.message.startswith("Invalid value") for cause in result.causes)
    elif result is not None:
        orjson.dumps(result)
        assert result["metadata"]["name"]
        tables.table(STORED_KINDS, kind, [result], now=NOW)
        write_path.is_gone(kind, result)
        if kind.scale:
            scale.to_scale(kind, result)


def namespace(kind: Kind) -> str | None:
    return "default" if kind.namespaced else None


@every_kind
@fuzzed
@given(data=st.data())
def test_creates_and_updates(kind: Kind, data: st.DataObject) -> None:
    old = create(kind, good(kind))
    write_request = request(field_validation=data.draw(st.sampled_from(["Strict", "Warn", "Ignore"])))
    body = data.draw(objects(kind, good(kind)))
    check_write(kind, lambda: write_path.create(kind, namespace(kind), body, write_request).object)
    body = data.draw(objects(kind, old))
    check_write(kind, lambda: write_path.update(kind, old, body, write_request).object)
    if kind.status:
        status = request(field_validation=write_request.options.field_validation, subresource="status")
        check_write(kind, lambda: write_path.update(kind, old, body, status).object)


@every_kind
@fuzzed
@given(data=st.data())
def test_patches(kind: Kind, data: st.DataObject) -> None:
    old = create(kind, good(kind, finalizers=["a.b/c"]))
    write_request = request(field_validation=data.draw(st.sampled_from(["Strict", "Warn"])))
    for media, patches in (
        ("merge-patch+json", objects(kind, good(kind)) | odd),
        ("json-patch+json", json_patches),
        ("strategic-merge-patch+json", strategic_patches(kind, good(kind))),
    ):
        patch = data.draw(patches)
        check_write(
            kind,
            lambda: write_path.patch(kind, old, patch, f"application/{media}", write_request).object,  # noqa: B023 called at once
        )


@every_kind
@fuzzed
@given(data=st.data())
def test_applies_and_deletions(kind: Kind, data: st.DataObject) -> None:
    old = create(kind, good(kind))
    body = data.draw(objects(kind, good(kind)))
    write_request = request(force=data.draw(st.booleans()))
    for before in (None, old):
        check_write(
            kind,
            lambda: write_path.apply(kind, before, namespace(kind), "a", body, write_request).object,  # noqa: B023 called at once
        )
    names = st.sampled_from(
        ("propagationPolicy", "orphanDependents", "gracePeriodSeconds", "preconditions", "x")
    )
    deletion = data.draw(st.dictionaries(names, odd, max_size=2))
    check_write(kind, lambda: write_path.delete(kind, old, deletion, write_request))


@fuzzed
@given(body=values(scale.SCHEMA) | odd, how=st.sampled_from(["update", "patch", "apply"]))
def test_scales(body: Any, how: str) -> None:
    old, write_request = create(kinds.DEPLOYMENT, good(kinds.DEPLOYMENT)), request(subresource="scale")
    writes = {
        "update": lambda: write_path.update(kinds.DEPLOYMENT, old, body, write_request).object,
        "patch": lambda: (
            write_path.patch(
                kinds.DEPLOYMENT, old, body, "application/merge-patch+json", write_request
            ).object
        ),
        "apply": lambda: write_path.apply(kinds.DEPLOYMENT, old, "default", "a", body, write_request).object,
    }
    check_write(kinds.DEPLOYMENT, writes[how])

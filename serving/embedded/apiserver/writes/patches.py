"""Applies a patch to an object by its media type: JSON patch, merge patch or strategic merge patch.

Server-side apply, the fourth media type, is in `write_path.apply`.
"""

from typing import Any

import jsonpatch
import orjson
from jsonpointer import JsonPointerException, resolve_pointer

from serving import errors
from serving.embedded.apiserver import status_errors
from serving.embedded.apiserver.schema import depth, schemas
from serving.embedded.apiserver.schema.schemas import Schema
from serving.embedded.apiserver.writes import strategic_merge
from serving.resources import kinds
from serving.resources.kinds import Kind
from serving.resources.kubernetes import patch_types

MAX_OPERATIONS = 10_000
"""kube-apiserver's bound on the operations of one JSON patch."""
MAX_COPIED = 3 * 1024 * 1024
"""Bytes that the copies of one JSON patch may make, as on kube-apiserver: each could double the object."""


def patched(
    kind: Kind, base: dict[str, Any], patch: Any, content_type: str, schema: Schema
) -> dict[str, Any]:
    """Return `base` with the patch applied.

    Raises:
        errors.ApiError: 400 for a malformed patch, 413 for too many operations, 415 for a media type that
            this kind does not take.
        errors.Invalid: a JSON patch does not apply.
    """
    media_type = content_type.split(";", maxsplit=1)[0].strip().lower()
    if media_type == patch_types.JSON_PATCH:
        return _json_patched(kind, base, patch)
    supported = patch_types.PATCHES if kind in kinds.BUILTIN else patch_types.PATCHES_OF_CUSTOM_KINDS
    if media_type not in supported or media_type == patch_types.APPLY_PATCH:
        message = (
            "the body of the request was in an unknown format - accepted media types include: "
            + ", ".join(supported)
        )
        raise errors.ApiError(415, "UnsupportedMediaType", message)
    if not isinstance(patch, dict):
        raise status_errors.bad_request("the patch must be a JSON object")
    if media_type == patch_types.STRATEGIC_PATCH:
        return strategic_merge.merge(base, patch, schema)
    result = merge(base, patch)
    assert isinstance(result, dict)
    return result


def merge(base: Any, patch: Any) -> Any:
    """Return `base` with a merge patch (RFC 7386) applied; the result shares parts with both."""
    if not isinstance(patch, dict):
        return patch
    out = dict(base) if isinstance(base, dict) else {}
    for key, value in patch.items():
        if value is None:
            out.pop(key, None)
        else:
            out[key] = merge(out.get(key), value)
    return out


def _json_patched(kind: Kind, base: dict[str, Any], patch: Any) -> dict[str, Any]:
    """Return a copy of `base` with a JSON patch (RFC 6902) applied."""
    if not isinstance(patch, list):
        raise status_errors.bad_request("a JSON patch must be a list of operations")
    if len(patch) > MAX_OPERATIONS:
        raise errors.ApiError(
            413, "RequestEntityTooLarge", f"at most {MAX_OPERATIONS} operations are allowed"
        )
    try:
        _check_operations(patch)
        result = _applied(schemas.clone(base), patch)
    except jsonpatch.InvalidJsonPatch as error:
        raise status_errors.bad_request(f"invalid JSON patch: {error}") from error
    except RecursionError as error:  # a failed `test` of a deep value: its message has the value
        raise depth.too_deep("the patched object") from error
    except (jsonpatch.JsonPatchException, JsonPointerException) as error:
        name = base["metadata"]["name"]
        message = (
            f'{status_errors.resource(kind)} "{name}" is invalid: the JSON patch does not apply: {error}'
        )
        raise errors.Invalid(422, "Invalid", message, (), status_errors.details(kind, name)) from error
    if not isinstance(result, dict):
        raise status_errors.bad_request("the patched object is no JSON object")
    depth.check(result, "the patched object")
    return result


def _check_operations(patch: list[Any]) -> None:
    """Check all operations before the first is done: the library checks `from` late, and not its type."""
    jsonpatch.JsonPatch(patch)
    for index, operation in enumerate(patch):
        if operation["op"] in ("copy", "move") and not isinstance(operation.get("from"), str):
            cause = status_errors.invalid(f"[{index}].from", operation.get("from"), "must be a JSON pointer")
            raise status_errors.bad_request(f"invalid JSON patch: {cause.field}: {cause.message}", (cause,))


def _applied(value: Any, patch: list[Any]) -> Any:
    """Apply the operations to `value` one by one: the size of a copy depends on the operations before it."""
    copied = 0
    for index, operation in enumerate(patch):
        if operation["op"] == "copy":
            source = resolve_pointer(value, operation["from"])
            depth.check(source, "a copied value")  # copies can double the nesting; the encoder takes 254
            # The end of a list, which a pointer with "-" denotes, is no JSON: the library refuses it below.
            copied += len(orjson.dumps(source, default=lambda _: None))
            if copied > MAX_COPIED:
                cause = status_errors.invalid(
                    f"[{index}].from", operation["from"], f"copies may make at most {MAX_COPIED} bytes"
                )
                raise errors.Invalid(
                    422, "Invalid", f"the JSON patch copies too much: {cause.message}", (cause,)
                )
        value = jsonpatch.JsonPatch([operation]).apply(value, in_place=True)
    return value

"""Parses request bodies in JSON, YAML or protobuf; a malformed one is a 4xx. Pure."""

import math
from typing import Any

import orjson
import yaml

from serving import errors
from serving.embedded.apiserver.requests import kubernetes_protobuf
from serving.embedded.apiserver.schema import depth
from serving.embedded.apiserver.schema.depth import DEEPEST
from serving.resources.formats import manifest_yaml
from serving.resources.kubernetes.patch_types import APPLY_PATCH, JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH

JSON = "application/json"
YAML = "application/yaml"
PROTOBUF = "application/vnd.kubernetes.protobuf"
YAMLS = (YAML, APPLY_PATCH, "application/x-yaml", "text/yaml")
_LABEL = "the body"
"""The name of the body in messages."""


class _BodyLoader(manifest_yaml.Loader):
    """Refuses aliases, by which a short text makes a huge value, and nesting of more than DEEPEST levels.

    Deeper levels are not read: the loader is recursive.
    """

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self._depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("aliases are not supported")
        if not self.check_event(yaml.CollectionStartEvent):
            return super().compose_node(parent, index)
        self._depth += 1
        if self._depth > DEEPEST:
            raise depth.too_deep(_LABEL)
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node


def media_type(header: str) -> str:
    """Return the media type of a Content-Type header, without parameters."""
    return header.split(";", 1)[0].strip().lower()


def parse(body: bytes, media: str, protobuf_kind: str = "") -> Any:
    """Return the body's value.

    Args:
        body: the bytes of the request's body.
        media: the body's media type, as of `media_type`; empty if the request has none, which is JSON.
        protobuf_kind: the kind that a body in protobuf must have; empty where protobuf is not accepted, such
            as for our own kinds.

    Raises:
        errors.ApiError: 400 for a malformed or too deeply nested body, 415 for an unknown media type.
    """
    if media in (JSON, "", MERGE_PATCH, JSON_PATCH, STRATEGIC_PATCH):
        return _check_depth(body, _json(body))
    if media in YAMLS:
        return _yaml(body)
    if media == PROTOBUF and protobuf_kind:
        return _check_depth(body, kubernetes_protobuf.decode(body, protobuf_kind))
    raise unsupported(media, (JSON, YAML, PROTOBUF) if protobuf_kind else (JSON, YAML))


def unsupported(media: str, known: tuple[str, ...]) -> errors.ApiError:
    """Return the 415 for a media type; `known` are the accepted ones."""
    return errors.ApiError(
        415,
        "UnsupportedMediaType",
        f"the body of the request was in an unknown format ({media or 'none'}) - "
        f"accepted media types include: {', '.join(known)}",
    )


def _json(body: bytes) -> Any:
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise errors.ApiError(400, "BadRequest", f"the body is not valid JSON: {error}") from error


def _yaml(body: bytes) -> Any:
    try:
        # Clients mostly send JSON, which is YAML too, and is parsed 100 times faster as JSON.
        return _check_depth(body, orjson.loads(body))
    except orjson.JSONDecodeError:
        pass
    try:
        value = yaml.load(body.decode(), _BodyLoader)  # noqa: S506 a SafeLoader that can do even less
        _check_finite(value)
        return orjson.loads(orjson.dumps(value))
    except (yaml.YAMLError, ValueError, TypeError) as error:
        text = " ".join(str(error).split())
        raise errors.ApiError(400, "BadRequest", f"the body is not valid YAML: {text}") from error


def _check_finite(value: Any) -> None:
    """Raise a ValueError for an infinite number or NaN, which YAML has and orjson would write as null."""
    stack = [value]
    while stack:
        node = stack.pop()
        if isinstance(node, float) and not math.isfinite(node):
            raise ValueError(f"{node} is not a JSON number")
        if isinstance(node, dict):
            stack.extend(node.values())
        elif isinstance(node, list):
            stack.extend(node)


def _check_depth(body: bytes, value: Any) -> Any:
    """Return the value of a body, whose nesting must not be too deep.

    A value in JSON has at most as many levels as its text has opening brackets. Of protobuf only the JSON in
    FieldsV1 can be deep: no built-in message contains itself.
    """
    if body.count(b"{") + body.count(b"[") > DEEPEST:
        depth.check(value, _LABEL)
    return value


def require_object(value: Any) -> dict[str, Any]:
    """Return the value, which must be a JSON object.

    Raises:
        errors.ApiError: 400.
    """
    if not isinstance(value, dict):
        raise errors.ApiError(
            400, "BadRequest", f"the body must be a JSON object, not {type(value).__name__}"
        )
    return value


def require_kind(body: dict[str, Any]) -> dict[str, Any]:
    """Return the object, which must have apiVersion and kind.

    Raises:
        errors.ApiError: 400.
    """
    for field in ("apiVersion", "kind"):
        if not body.get(field):
            raise errors.ApiError(400, "BadRequest", f"the {field} is missing in the object")
    return body

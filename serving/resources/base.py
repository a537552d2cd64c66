"""Base types of our kinds, and the conversion of a type into a structural schema.

One source serves three purposes: the Python types that planners read, the CRD schema that a cluster enforces,
and the schema that the embedded server enforces. A rule between fields is a CEL expression in the schema
(`x-kubernetes-validations`), so that both servers evaluate the same text.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

NAME_PATTERN = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
"""RFC 1123 label: https://kubernetes.io/docs/concepts/overview/working-with-objects/names/."""

Name = Annotated[str, Field(pattern=NAME_PATTERN, min_length=1, max_length=63)]
Quantity = Annotated[
    str,
    Field(
        pattern=r"^\+?([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][-+]?[0-9]{1,2})?$",
        json_schema_extra={"x-kubernetes-int-or-string": True},
    ),
]
"""A quantity such as `500m` or `512Mi`: the grammar of k8s.io/apimachinery/pkg/api/resource/quantity.go
without a minus sign.

The pattern in that file also accepts `1.5.2`, which fails later, without a message for the user.
"""
Duration = Annotated[str, Field(max_length=32, pattern=r"^[0-9]+(\.[0-9]+)?(us|ms|s|m|h)$")]
"""A number and one unit: `250ms`, `1.5s`, `2h`; parsed by `serving.resources.formats.duration`."""
Amount = Annotated[
    str,
    Field(
        max_length=32,
        pattern=r"^[0-9]+(\.[0-9]+)?$",
        json_schema_extra={"x-kubernetes-int-or-string": True},
    ),
]
"""A non-negative decimal number: money, a rate, a factor."""


class Base(BaseModel):
    """A frozen part of an object, in camelCase in JSON; unknown fields are rejected."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=to_camel,
        populate_by_name=True,
        coerce_numbers_to_str=True,
    )


class Manifest(Base):
    """A file that describes software of others to an installation."""

    name: str
    """The name of the file without its suffix."""


def rules(*rules_: tuple[str, str]) -> dict[str, Any]:
    """Return the `json_schema_extra` of a model with these (CEL expression, message) rules."""
    return {"x-kubernetes-validations": [{"rule": rule, "message": message} for rule, message in rules_]}


def in_six_digits(body: Any) -> Any:
    """Return JSON with floats rounded to six significant digits, as `kubectl get` prints all digits."""
    if isinstance(body, float):
        return float(f"{body:.6g}")
    if isinstance(body, dict):
        return {key: in_six_digits(value) for key, value in body.items()}
    return [in_six_digits(value) for value in body] if isinstance(body, list) else body


def list_map(*keys: str) -> dict[str, Any]:
    """Return the `json_schema_extra` of a list whose items are keyed by these fields."""
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(keys)}


ATOMIC: dict[str, Any] = {"x-kubernetes-list-type": "atomic"}
"""The `json_schema_extra` of a list that is replaced as a whole."""


class ConditionStatus(Base):
    """metav1.Condition."""

    type: str
    status: Literal["True", "False", "Unknown"]
    reason: str
    message: str = ""
    observed_generation: int = 0
    last_transition_time: Annotated[str, Field(json_schema_extra={"format": "date-time"})]


Conditions = Annotated[list[ConditionStatus], Field(json_schema_extra=list_map("type"))]


def structural(model: type[BaseModel]) -> dict[str, Any]:
    """Return the model as an OpenAPI v3 structural schema: no `$ref`, no `anyOf` with null, no titles.

    https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/,
    section "Specifying a structural schema".
    """
    raw = model.model_json_schema(by_alias=True)
    result = _inline(raw, raw.get("$defs", {}))
    assert isinstance(result, dict)
    return result


_DROPPED = frozenset({"$defs", "title", "additionalProperties"})


def _inline(node: Any, defs: dict[str, Any]) -> Any:
    """Return a part of pydantic's schema as structural: each `$ref` replaced by its definition in `defs`, and
    each union with null by the other type.
    """
    if isinstance(node, list):
        return [_inline(item, defs) for item in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        target = defs[node["$ref"].rsplit("/", 1)[-1]]
        return _inline({**target, **{k: v for k, v in node.items() if k != "$ref"}}, defs)
    if "anyOf" in node:
        options = [option for option in node["anyOf"] if option.get("type") != "null"]
        assert len(options) == 1, f"a structural schema has no unions: {node}"
        return _inline({**options[0], **{k: v for k, v in node.items() if k != "anyOf"}}, defs)
    return _plain(node, defs)


def _plain(node: dict[str, Any], defs: dict[str, Any]) -> dict[str, Any]:
    """Return a node without `$ref` and `anyOf` as structural.

    Keys that a structural schema does not allow are dropped, or replaced by those of Kubernetes.
    """
    out: dict[str, Any] = {}
    for key, value in node.items():
        if key == "properties":
            out[key] = {name: _inline(child, defs) for name, child in value.items()}
        elif key == "additionalProperties" and isinstance(value, dict):
            out[key] = _inline(value, defs)
        elif key == "additionalProperties" and value is True:
            out["x-kubernetes-preserve-unknown-fields"] = True
        elif key == "const":
            out["enum"] = [value]
        elif key == "description":
            out[key] = " ".join(value.split())
        elif key not in _DROPPED and not (key == "default" and value is None):
            out[key] = _inline(value, defs)
    if out.get("x-kubernetes-int-or-string"):
        out.pop("type", None)  # an integer and a string are both valid
    # Planners read an absent object or list as an empty one, so empty defaults are dropped.
    if isinstance(out.get("default"), dict):
        out["default"] = _without_empty(out["default"])
    if "default" in out and out["default"] in ({}, []):
        out.pop("default")
    if out.get("format") == "date-time" and out.get("default") == "":
        out.pop("default")  # an empty string is no valid time: an unknown time is omitted
    return out


def _without_empty(default: dict[str, Any]) -> dict[str, Any]:
    """Return a default without empty fields, at any depth."""
    filled = {
        key: _without_empty(value) if isinstance(value, dict) else value for key, value in default.items()
    }
    return {key: value for key, value in filled.items() if value not in (None, {}, [])}

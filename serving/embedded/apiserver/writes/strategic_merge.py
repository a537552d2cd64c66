"""Strategic merge patch: lists merged by the key that the schema names, and directives beside the data.

https://github.com/kubernetes/community/blob/master/contributors/devel/sig-api-machinery/strategic-merge-patch.md
"""

from typing import Any

from serving.embedded.apiserver import status_errors
from serving.embedded.apiserver.schema import schemas
from serving.embedded.apiserver.schema.schemas import Schema

DIRECTIVE, RETAIN = "$patch", "$retainKeys"
ORDER, DELETE_FROM = "$setElementOrder/", "$deleteFromPrimitiveList/"


def merge(base: dict[str, Any], patch: dict[str, Any], schema: Schema) -> dict[str, Any]:
    """Return `base` with the patch merged in.

    Raises:
        errors.ApiError: 400 for a directive that is unknown or an item without its key.
    """
    how = patch.get(DIRECTIVE)
    if how == "replace":
        return {key: _plain(value) for key, value in patch.items() if not _is_directive(key)}
    if how == "delete":
        return {}
    if how not in (None, "merge"):
        cause = status_errors.unsupported(DIRECTIVE, how, ("replace", "delete", "merge"))
        raise status_errors.bad_request(f"unknown patch directive: {DIRECTIVE}: {cause.message}", (cause,))
    out = dict(base)
    if RETAIN in patch:
        retained = _listed(patch, RETAIN)
        out = {key: value for key, value in out.items() if key in retained}
    for key, value in patch.items():
        if key.startswith(DELETE_FROM):
            name, unwanted = key.removeprefix(DELETE_FROM), _listed(patch, key)
            if isinstance(out.get(name), list):
                out[name] = [item for item in out[name] if item not in unwanted]
        elif not _is_directive(key):
            _merge_key(out, key, value, schemas.child(schema, key) or schemas.ANY)
    for key in patch:
        if key.startswith(ORDER):
            name, order = key.removeprefix(ORDER), _listed(patch, key)
            if isinstance(out.get(name), list):
                out[name] = _ordered(out[name], order, (schemas.child(schema, name) or schemas.ANY))
    return out


def _listed(patch: dict[str, Any], directive: str) -> list[Any]:
    value = patch[directive]
    if not isinstance(value, list):
        cause = status_errors.invalid(directive, value, "must be a list")
        raise status_errors.bad_request(f"the patch is invalid: {directive}: {cause.message}", (cause,))
    return value


def _is_directive(key: str) -> bool:
    return key in (DIRECTIVE, RETAIN) or key.startswith((ORDER, DELETE_FROM))


def _plain(value: Any) -> Any:
    """Return the value without directives and nulls: what a patch says where there was nothing."""
    if isinstance(value, dict):
        return {
            key: _plain(item) for key, item in value.items() if item is not None and not _is_directive(key)
        }
    if isinstance(value, list):
        return [_plain(item) for item in value if not (isinstance(item, dict) and DIRECTIVE in item)]
    return value


def _merge_key(out: dict[str, Any], key: str, value: Any, schema: Schema) -> None:
    if value is None:
        out.pop(key, None)
    elif isinstance(value, dict):
        if value.get(DIRECTIVE) == "delete":
            out.pop(key, None)
        elif isinstance(out.get(key), dict):
            out[key] = merge(out[key], value, schema)
        else:
            out[key] = merge({}, value, schema)
    elif isinstance(value, list) and "merge" in schema.get("x-kubernetes-patch-strategy", "").split(","):
        out[key] = _merge_list(out.get(key) or [], value, schema)
    else:
        out[key] = _plain(value)


def _merge_list(base: list[Any], patch: list[Any], schema: Schema) -> list[Any]:
    name = schema.get("x-kubernetes-patch-merge-key")
    if not name:
        return base + [
            item for index, item in enumerate(patch) if item not in base and item not in patch[:index]
        ]
    if {DIRECTIVE: "replace"} in patch:
        return [_plain(item) for item in patch if item != {DIRECTIVE: "replace"}]
    out = list(base)
    for item in patch:
        if not isinstance(item, dict) or name not in item:
            raise status_errors.bad_request(
                f"map: {status_errors.show(item)} does not contain declared merge key: {name}"
            )
        matches = [index for index, have in enumerate(out) if have.get(name) == item[name]]
        if item.get(DIRECTIVE) == "delete":
            out = [have for have in out if have.get(name) != item[name]]
        elif matches:
            out[matches[0]] = merge(out[matches[0]], item, schemas.items(schema))
        else:
            out.append(merge({}, item, schemas.items(schema)))
    return out


def _ordered(have: list[Any], order: list[Any], schema: Schema) -> list[Any]:
    """Items that the order names stand in that order; the others keep their place behind their neighbour."""
    name = schema.get("x-kubernetes-patch-merge-key")
    wanted = [item.get(name) if isinstance(item, dict) else item for item in order]

    def key(item: Any) -> Any:
        return item.get(name) if name and isinstance(item, dict) else item

    named = sorted((item for item in have if key(item) in wanted), key=lambda item: wanted.index(key(item)))
    return [named.pop(0) if key(item) in wanted else item for item in have]

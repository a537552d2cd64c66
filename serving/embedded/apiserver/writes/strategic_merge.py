"""Strategic merge patch: lists merged by the key that the schema names, and directives beside the data.

https://github.com/kubernetes/community/blob/master/contributors/devel/sig-api-machinery/strategic-merge-patch.md
"""

from typing import Any

from serving.embedded.apiserver import status_errors
from serving.embedded.apiserver.schema import schemas
from serving.embedded.apiserver.schema.schemas import Schema

DIRECTIVE = "$patch"
"""What to do with a map or an item of a list: `replace`, `delete`, or `merge` (the default)."""
RETAIN = "$retainKeys"
"""Lists the only members of the map that are kept."""
ORDER = "$setElementOrder/"
"""Prefix of the name of a list, whose items get the order of this directive."""
DELETE_FROM = "$deleteFromPrimitiveList/"
"""Prefix of the name of a list of scalars, which loses the values of this directive."""


def merge(base: dict[str, Any], patch: dict[str, Any], schema: Schema) -> dict[str, Any]:
    """Return `base` with the patch merged in.

    Raises:
        errors.ApiError: 400 for a directive that is unknown or an item without its key.
    """
    directive = patch.get(DIRECTIVE)
    if directive == "replace":
        return {key: _plain(value) for key, value in patch.items() if not _is_directive(key)}
    if directive == "delete":
        return {}
    if directive not in (None, "merge"):
        cause = status_errors.unsupported(DIRECTIVE, directive, ("replace", "delete", "merge"))
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
    """Return the value without directives and nulls: there is no value of `base` that they could change."""
    if isinstance(value, dict):
        return {
            key: _plain(item) for key, item in value.items() if item is not None and not _is_directive(key)
        }
    if isinstance(value, list):
        return [_plain(item) for item in value if not (isinstance(item, dict) and DIRECTIVE in item)]
    return value


def _merge_key(out: dict[str, Any], key: str, value: Any, schema: Schema) -> None:
    """Merge the patch's member `key` into `out`, in place; `schema` is the member's."""
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
    """Merge lists of maps by their merge key; to a list of scalars, add the values that it lacks."""
    merge_key = schema.get("x-kubernetes-patch-merge-key")
    if not merge_key:
        return base + [
            item for index, item in enumerate(patch) if item not in base and item not in patch[:index]
        ]
    if {DIRECTIVE: "replace"} in patch:
        return [_plain(item) for item in patch if item != {DIRECTIVE: "replace"}]
    out = list(base)
    for item in patch:
        if not isinstance(item, dict) or merge_key not in item:
            raise status_errors.bad_request(
                f"map: {status_errors.show(item)} does not contain declared merge key: {merge_key}"
            )
        matches = [index for index, present in enumerate(out) if present.get(merge_key) == item[merge_key]]
        if item.get(DIRECTIVE) == "delete":
            out = [present for present in out if present.get(merge_key) != item[merge_key]]
        elif matches:
            out[matches[0]] = merge(out[matches[0]], item, schemas.items(schema))
        else:
            out.append(merge({}, item, schemas.items(schema)))
    return out


def _ordered(items: list[Any], order: list[Any], schema: Schema) -> list[Any]:
    """Return the items that `order` names in its order, in the places that they had; others keep theirs.

    `order` has maps with the merge key, or scalars.
    """
    merge_key = schema.get("x-kubernetes-patch-merge-key")
    wanted = [item.get(merge_key) if isinstance(item, dict) else item for item in order]

    def key(item: Any) -> Any:
        return item.get(merge_key) if merge_key and isinstance(item, dict) else item

    named = sorted((item for item in items if key(item) in wanted), key=lambda item: wanted.index(key(item)))
    return [named.pop(0) if key(item) in wanted else item for item in items]

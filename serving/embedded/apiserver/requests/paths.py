"""Parses a URL path into kind, namespace, name and subresource. Pure."""

from dataclasses import dataclass
from urllib.parse import unquote

from serving.resources import kinds
from serving.resources.kinds import Kind

_BY_PATH: dict[tuple[str, str, str], Kind] = {(k.group, k.version, k.plural): k for k in kinds.ALL}


@dataclass(frozen=True)
class Address:
    """A collection (`name` is None) or an object, maybe with a subresource."""

    kind: Kind
    namespace: str | None = None
    name: str | None = None
    subresource: str | None = None


def parse(path: str) -> Address | None:
    """Return the address, or None where the path is not of a kind that is served.

    Args:
        path: still percent-encoded, so that a slash within a name is not a separator: a DELETE of the object
            `/` must not delete the collection.
    """
    parts = _parts(path)
    if parts[:2] == ["api", "v1"]:
        group, version, rest = "", "v1", parts[2:]
    elif parts[0] == "apis" and len(parts) > 3:
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return None
    namespace = None
    if rest[:1] == ["namespaces"] and len(rest) > 2 and (group, version, rest[2]) in _BY_PATH:
        namespace, rest = rest[1], rest[2:]
    if not rest or len(rest) > 3 or "" in rest or namespace == "":
        return None
    kind = _BY_PATH.get((group, version, rest[0]))
    if kind is None or (namespace is not None and not kind.namespaced):
        return None
    name = rest[1] if len(rest) > 1 else None
    if name is not None and kind.namespaced and namespace is None:
        return None
    subresource = rest[2] if len(rest) > 2 else None
    if subresource is not None and not _has(kind, subresource):
        return None
    return Address(kind, namespace, name, subresource)


def _parts(path: str) -> list[str]:
    parts = path.removeprefix("/").split("/")
    if "%" not in path:
        return parts
    parts = [unquote(part) for part in parts]
    return [""] if any("/" in part for part in parts) else parts


def _has(kind: Kind, subresource: str) -> bool:
    return (
        (subresource == "status" and kind.status)
        or (subresource == "scale" and kind.scale)
        or (subresource == "log" and kind == kinds.POD)
    )

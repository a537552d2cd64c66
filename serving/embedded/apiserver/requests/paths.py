"""Parses a URL path into kind, namespace, name and subresource. Pure."""

from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import unquote

from serving.embedded.apiserver.schema.stored_kinds import StoredKinds
from serving.resources import kinds
from serving.resources.kinds import Kind


@dataclass(frozen=True)
class Address:
    """A collection (`name` is None) or an object of a stored kind, maybe with a subresource."""

    kind: Kind
    namespace: str | None = None
    name: str | None = None
    subresource: str | None = None


class ResourcePath(NamedTuple):
    """The parts of the path of any resource, of a kind that is served or not."""

    group: str
    version: str
    namespace: str | None
    plural: str
    name: str | None = None
    subresource: str | None = None


def parse(stored_kinds: StoredKinds, path: str) -> Address | None:
    """Return the address, or None where the path addresses nothing of a stored kind.

    Args:
        stored_kinds: the stored kinds.
        path: still percent-encoded, so that a slash within a name is not a separator: a DELETE of the object
            `/` must not delete the collection.
    """
    group, version, remaining = _group_version(_parts(path))
    namespace = None
    if (
        remaining[:1] == ["namespaces"]
        and len(remaining) > 2
        and stored_kinds.at(group, version, remaining[2])
    ):
        namespace, remaining = remaining[1], remaining[2:]
    if not remaining or len(remaining) > 3 or "" in remaining or namespace == "":
        return None
    kind = stored_kinds.at(group, version, remaining[0])
    if kind is None or (namespace is not None and not kind.namespaced):
        return None
    name = remaining[1] if len(remaining) > 1 else None
    if name is not None and kind.namespaced and namespace is None:
        return None
    subresource = remaining[2] if len(remaining) > 2 else None
    if subresource is not None and not _has(kind, subresource):
        return None
    return Address(kind, namespace, name, subresource)


def split(path: str) -> ResourcePath | None:
    """Return the parts of the path of a resource, or None for another path.

    Args:
        path: still percent-encoded.
    """
    group, version, remaining = _group_version(_parts(path))
    namespace = None
    if remaining[:1] == ["namespaces"] and len(remaining) > 2:
        namespace, remaining = remaining[1], remaining[2:]
    if not remaining or len(remaining) > 3 or "" in remaining or namespace == "":
        return None
    return ResourcePath(group, version, namespace, *remaining)


def resource_path(address: Address) -> ResourcePath:
    """Return the parts of the path of an address."""
    kind = address.kind
    return ResourcePath(
        kind.group, kind.version, address.namespace, kind.plural, address.name, address.subresource
    )


def _group_version(parts: list[str]) -> tuple[str, str, list[str]]:
    """Return group, version and the parts after them, which are none if the path is of no resource."""
    if parts[:2] == ["api", "v1"]:
        return "", "v1", parts[2:]
    if parts[0] == "apis" and len(parts) > 3:
        return parts[1], parts[2], parts[3:]
    return "", "", []


def _parts(path: str) -> list[str]:
    """Return the decoded parts of a path; if one has a slash itself, `[""]`, the path of no resource."""
    parts = path.removeprefix("/").split("/")
    if "%" not in path:
        return parts
    parts = [unquote(part) for part in parts]
    return [""] if any("/" in part for part in parts) else parts


def _has(kind: Kind, subresource: str) -> bool:
    return (
        (subresource == "status" and kind.status)
        or (subresource == "scale" and kind.scale is not None)
        or (subresource == "log" and kind == kinds.POD)
    )

"""The names of Secrets and ConfigMaps that a Pod's spec refers to, all in the Pod's own namespace. Pure."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from serving.errors import Cause
from serving.resources.names import MAX_SUBDOMAIN, SUBDOMAIN_PATTERN

_SUBDOMAIN = re.compile(SUBDOMAIN_PATTERN)


def refusals(spec: Mapping[str, Any]) -> Iterator[Cause]:
    """Yield the references whose name is not valid: a `..` in an API path would lead to another object."""
    for path, name in _references(spec):
        if not isinstance(name, str) or len(name) > MAX_SUBDOMAIN or not _SUBDOMAIN.fullmatch(name):
            yield Cause(
                path,
                f"{name!r} must be a DNS-1123 subdomain: at most {MAX_SUBDOMAIN} lower-case letters, digits, "
                "'-' and '.', with a letter or digit at the start, at the end and beside each '.'",
            )


def _references(spec: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for index, volume in enumerate(spec.get("volumes") or []):
        for kind, field in (("secret", "secretName"), ("configMap", "name")):
            if kind in volume:
                yield f"spec.volumes[{index}].{kind}.{field}", (volume[kind] or {}).get(field)
    for index, reference in enumerate(spec.get("imagePullSecrets") or []):
        yield f"spec.imagePullSecrets[{index}].name", reference.get("name")
    for kind in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(kind) or []):
            yield from _of_container(f"spec.{kind}[{index}]", container)


def _of_container(path: str, container: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for index, entry in enumerate(container.get("envFrom") or []):
        for field in ("configMapRef", "secretRef"):
            if field in entry:
                yield f"{path}.envFrom[{index}].{field}.name", (entry[field] or {}).get("name")
    for index, entry in enumerate(container.get("env") or []):
        for field in ("configMapKeyRef", "secretKeyRef"):
            source = (entry.get("valueFrom") or {}).get(field)
            if source is not None:
                yield f"{path}.env[{index}].valueFrom.{field}.name", source.get("name")

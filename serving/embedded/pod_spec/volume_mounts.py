"""The volumes and mounts that are supported, and the paths at which containers see them. Pure.

As root a container has a private view of the files, in which volumeMounts are bind mounts. As an ordinary
user nothing can be mounted: a volumeMount is refused, except that of an emptyDir, hostPath or image volume
whose path is the prefix of an environment variable's value. That value is rewritten to the volume's own
path, so `SLIPWAY_MODEL_DIR` and `SLIPWAY_OUTPUT_DIR` work without root.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from posixpath import normpath
from typing import Any, NamedTuple

from serving.errors import Cause
from serving.resources import names

_KNOWN = ("emptyDir", "hostPath", "configMap", "secret", "image")
"""The types of volumes that are supported."""
_DIRECTORIES = ("emptyDir", "hostPath", "image")
"""The types of volumes that are one path of the machine, which needs no mount to be reached."""
_RESERVED = ("/", "/bin", "/etc", "/lib", "/lib64", "/sbin", "/usr", "/usr/lib", "/usr/bin", "/usr/lib64")
"""Directories of the machine that no mount may cover; mounts below them are allowed, if not listed too."""
_RESERVED_TREES = ("/proc", "/sys", "/dev")
"""Directories that no mount may cover, nor any path below them."""
_IMAGE = re.compile(
    r"[A-Za-z0-9.:\[\]-]+/[a-z0-9][-a-z0-9._/]*(?::[A-Za-z0-9_][-A-Za-z0-9_.]{0,127})?"
    r"@(?P<digest>sha256:[0-9a-f]{64})"
)
"""Registry, repository, an optional tag, and a digest: a volume's content must be the same in every Pod."""


class KeyedFile(NamedTuple):
    """A file of a ConfigMap or Secret."""

    path: str
    """Relative to the mount."""
    content: bytes
    mode: int
    """Permission bits."""


@dataclass(frozen=True)
class Mount:
    """One mount: a directory or file to bind (`source`), or `files` to write into a tmpfs."""

    target: str
    source: str | None
    read_only: bool
    files: tuple[KeyedFile, ...] | None = None
    is_resolved: bool = False
    """Whether `source` was checked to have no symbolic links. A link that replaced a part of it since then is
    refused.
    """
    is_own: bool = False
    """Whether `source` belongs to the Pod alone, so that the mount points of inner mounts are made in it."""


def digest_of(reference: str) -> str | None:
    """Return the digest of an image reference; None where it has none, or is invalid."""
    match = _IMAGE.fullmatch(reference)
    return match["digest"] if match else None


def kind_of(volume: Mapping[str, Any]) -> str | None:
    """Return the volume's type; None where it is not supported."""
    return next((kind for kind in _KNOWN if kind in volume), None)


def normal_path(path: str) -> str:
    """Return a path without `.`, `..` and repeated slashes, as the kernel reads it.

    Unlike `normpath`, which keeps two leading slashes: POSIX lets a system give them another meaning.
    """
    return re.sub("^//", "/", normpath(path))


def within(path: str, directory: str) -> bool:
    """Whether a normalised path is the directory itself or below it."""
    return path == directory or path.startswith(directory.rstrip("/") + "/")


def volume_refusals(
    volumes: Sequence[Mapping[str, Any]], data: str | None, namespace: str
) -> Iterator[Cause]:
    """Yield the unsupported fields of volumes.

    Args:
        volumes: of the Pod's spec.
        data: the data directory; None where it is not known.
        namespace: the Pod's; empty where it is not known, as in a template.
    """
    for index, volume in enumerate(volumes):
        path = f"spec.volumes[{index}]"
        kind = kind_of(volume)
        if kind is None:
            source = next(iter(volume.keys() - {"name"}), "name")
            yield Cause(f"{path}.{source}", f"volumes here are {', '.join(_KNOWN)}")
            continue
        body = volume[kind] or {}
        if kind == "emptyDir":
            for field in ("medium", "mode", "sizeLimit"):
                if body.get(field):
                    yield Cause(f"{path}.emptyDir.{field}", "not supported on one machine")
        elif kind == "hostPath":
            host_path = normal_path(body.get("path", ""))
            inside = data is not None and (within(host_path, data) or within(data, host_path))
            if not host_path.startswith("/") or inside:
                yield Cause(
                    f"{path}.hostPath.path",
                    f"{host_path!r} must be absolute and apart from the data directory",
                )
            if body.get("type", "") not in ("", "Directory", "DirectoryOrCreate", "File"):
                yield Cause(f"{path}.hostPath.type", "must be Directory, DirectoryOrCreate or File")
        elif kind == "image" and digest_of(body.get("reference", "")) is None:
            yield Cause(
                f"{path}.image.reference",
                f"{body.get('reference')!r} is neither {names.LOCAL_REGISTRY}/NAMESPACE/MODEL@sha256:HEX nor "
                "REGISTRY/REPOSITORY@sha256:HEX",
            )
        elif kind == "image" and namespace and _is_foreign(body["reference"], namespace):
            yield Cause(
                f"{path}.image.reference",
                f"{body['reference']!r} must begin with {names.LOCAL_REGISTRY}/{namespace}/: a model that was"
                " built here can be mounted in its own namespace alone",
            )
        elif kind in ("configMap", "secret"):
            yield from _item_refusals(f"{path}.{kind}", body)


def is_local(reference: str) -> bool:
    """Whether an image was built on this machine, and is in no registry."""
    return reference.startswith(f"{names.LOCAL_REGISTRY}/")


def _is_foreign(reference: str, namespace: str) -> bool:
    return is_local(reference) and not reference.startswith(f"{names.LOCAL_REGISTRY}/{namespace}/")


def _item_refusals(path: str, source: Mapping[str, Any]) -> Iterator[Cause]:
    """Yield the paths of items that root would write outside of the volume, as Kubernetes refuses them."""
    for index, item in enumerate(source.get("items") or []):
        text = item.get("path", "")
        if not text or text.startswith(("/", "..")) or ".." in text.split("/"):
            yield Cause(
                f"{path}.items[{index}].path",
                f"{text!r} must be relative, and neither have nor begin with '..'",
            )


def mount_refusals(
    path: str,
    container: Mapping[str, Any],
    spec: Mapping[str, Any],
    *,
    mounts: bool,
    protected: Collection[str],
) -> Iterator[Cause]:
    """Yield the unsupported volumeMounts of one container.

    Args:
        path: the container's path, such as `spec.containers[0]`.
        container: the container.
        spec: the spec of the Pod.
        mounts: whether the node can mount (its agent runs as root).
        protected: directories that a mount must not cover.
    """
    volumes = {volume["name"]: volume for volume in spec.get("volumes") or []}
    for index, mount in enumerate(container.get("volumeMounts") or []):
        at = f"{path}.volumeMounts[{index}]"
        target = normal_path(mount.get("mountPath", ""))
        for field in ("subPath", "subPathExpr", "recursiveReadOnly", "mountPropagation", "bindMountOptions"):
            if mount.get(field) not in (None, "", "Disabled", "None"):
                yield Cause(f"{at}.{field}", "not supported on one machine")
        if mount.get("name") not in volumes:
            yield Cause(f"{at}.name", f"there is no volume {mount.get('name')!r}", "FieldValueNotFound")
            continue
        is_reserved = target in _RESERVED or any(within(target, tree) for tree in _RESERVED_TREES)
        is_covering = any(within(directory, target) for directory in protected)
        if not target.startswith("/") or is_reserved or is_covering:
            yield Cause(f"{at}.mountPath", f"{target!r} must not be covered")
        elif not mounts and not _can_rewrite(container, volumes[mount["name"]], target):
            yield Cause(
                f"{at}.mountPath",
                "mounting needs root: run `slipway up` as root, or reach the volume by an env value "
                f"that begins with {target!r}",
            )


def _can_rewrite(container: Mapping[str, Any], volume: Mapping[str, Any], target: str) -> bool:
    """Whether `rewrite` changes a variable of the container, so that its program reaches the volume."""
    return kind_of(volume) in _DIRECTORIES and any(
        within(normal_path(str(entry.get("value", ""))), target) for entry in container.get("env") or []
    )


def rewrite(
    env: Mapping[str, str], container: Mapping[str, Any], places: Mapping[str, str]
) -> dict[str, str]:
    """Return the environment with paths below a mountPath rewritten to paths of the volume.

    Args:
        env: the container's environment.
        container: the container, for its volumeMounts.
        places: the directory of each volume, by name.
    """
    # In reverse order a mountPath comes before its parents: the deepest one that matches wins.
    targets = sorted(
        ((normal_path(m["mountPath"]), places[m["name"]]) for m in container.get("volumeMounts") or []),
        reverse=True,
    )
    result = dict(env)
    for name, value in env.items():
        for target, place in targets:
            if value.startswith("/") and within(normal_path(value), target):
                result[name] = place + normal_path(value)[len(target) :]
                break
    return result


def keyed_files(data: Mapping[str, bytes], source: Mapping[str, Any], *, mode: int) -> tuple[KeyedFile, ...]:
    """Return the files of a configMap or secret volume: all keys, or `items` under their paths.

    `mode` is that of the files whose item has none. An optional source has no file for a missing key.

    Raises:
        KeyError: `items` of a source that is not optional names a key that does not exist.
    """
    items = source.get("items")
    if not items:
        return tuple(KeyedFile(key, data[key], mode) for key in sorted(data))
    return tuple(
        KeyedFile(
            item["path"].lstrip("/"),
            data[item["key"]],
            mode if item.get("mode") is None else int(item["mode"]),
        )
        for item in items
        if item["key"] in data or not source.get("optional")
    )

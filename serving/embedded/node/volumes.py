"""Makes a Pod's volumes: directories on this machine, and files out of ConfigMaps and Secrets."""

import base64
import os
from collections.abc import Iterable
from pathlib import Path
from posixpath import normpath
from typing import Any

from serving import errors
from serving.embedded.node.context import Node
from serving.embedded.workloads.pod_mounts import Mount, keyed_files, kind_of, tree_of
from serving.kube.client import Object
from serving.resources import kinds
from serving.resources.names import LOCAL_REGISTRY

DEFAULT_MODE = 0o400
"""Of files made from Secrets and ConfigMaps; they belong to the container's user."""


async def config_maps(node: Node, namespace: str, names: Iterable[str]) -> dict[str, dict[str, bytes]]:
    """Return the data of ConfigMaps by name; those that do not exist are left out."""
    found: dict[str, dict[str, bytes]] = {}
    for name in names:
        try:
            obj = await node.kube.get(kinds.CONFIG_MAP, namespace, name)
        except errors.NotFound:
            continue
        found[name] = {key: text.encode() for key, text in (obj.get("data") or {}).items()}
        found[name] |= {key: base64.b64decode(text) for key, text in (obj.get("binaryData") or {}).items()}
    return found


async def secrets(node: Node, namespace: str, names: Iterable[str]) -> dict[str, dict[str, bytes]]:
    """Return the data of Secrets by name; those that do not exist are left out."""
    found: dict[str, dict[str, bytes]] = {}
    for name in names:
        try:
            obj = await node.kube.get(kinds.SECRET, namespace, name)
        except errors.NotFound:
            continue
        found[name] = {key: base64.b64decode(text) for key, text in (obj.get("data") or {}).items()}
    return found


def directory(node: Node, uid: str, volume: Object) -> str:
    """Make sure that an emptyDir, hostPath or image volume is there; returns its directory or file.

    Raises:
        errors.Temporary: it is not there yet.
    """
    kind = kind_of(volume)
    if kind == "emptyDir":
        path = node.data_dir.pod_volume(uid, volume["name"])
        if not path.is_dir():
            path.mkdir(parents=True, mode=0o700)
            _give(node, path)
        return str(path)
    if kind == "image":
        digest = tree_of(volume["image"]["reference"])
        tree = node.data_dir.models / "trees" / str(digest)
        if not tree.is_dir():
            raise errors.Temporary(
                "ErrImagePull",
                f"{volume['image']['reference']}: not in this machine's model store ({LOCAL_REGISTRY})",
            )
        return str(tree)
    return _host_path(node, normpath(volume["hostPath"]["path"]), volume["hostPath"].get("type", ""))


def _host_path(node: Node, where: str, kind: str) -> str:
    path = Path(where)
    if kind == "DirectoryOrCreate" and not path.exists():
        path.mkdir(parents=True, mode=0o755)
        _give(node, path)
    right = {"": path.exists(), "File": path.is_file()}.get(kind, path.is_dir())
    if not right:
        raise errors.Temporary("CreateContainerConfigError", f"hostPath {where}: is no {kind or 'file'}")
    return where


def _give(node: Node, path: Path) -> None:
    if node.jail is not None:
        os.chown(path, node.jail.uid, node.jail.gid)


async def mounts(node: Node, pod: Object, container: Object) -> list[Mount]:
    """Return the container's mounts, outer before inner, with everything they need in place.

    Raises:
        errors.Temporary: something is not there yet.
    """
    volumes = {volume["name"]: volume for volume in pod["spec"].get("volumes") or []}
    found = []
    for mount in container.get("volumeMounts") or []:
        volume = volumes[mount["name"]]
        target = normpath(mount["mountPath"])
        kind = kind_of(volume)
        if kind in ("configMap", "secret"):
            found.append(Mount(target, None, read_only=True, files=await _files(node, pod, volume)))
            continue
        read_only = bool(mount.get("readOnly")) or kind == "image"
        found.append(Mount(target, directory(node, pod["metadata"]["uid"], volume), read_only))
    return sorted(found, key=lambda mount: mount.target)


async def _files(node: Node, pod: Object, volume: Object) -> tuple[tuple[str, bytes, int], ...]:
    namespace = pod["metadata"]["namespace"]
    source: dict[str, Any] = volume.get("configMap") or volume.get("secret") or {}
    name = source.get("name") or source.get("secretName") or ""
    what = "configmap" if "configMap" in volume else "secret"
    read = config_maps if what == "configmap" else secrets
    data = (await read(node, namespace, [name])).get(name)
    if data is None:
        if source.get("optional"):
            return ()
        raise errors.Temporary("CreateContainerConfigError", f'{what} "{name}" not found')
    try:
        return keyed_files(data, source, mode=int(source.get("defaultMode") or DEFAULT_MODE))
    except KeyError as error:
        raise errors.Temporary("CreateContainerConfigError", f'{what} "{name}" has no key {error}') from error

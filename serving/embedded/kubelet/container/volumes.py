"""Makes a Pod's volumes: directories on this machine, files of ConfigMaps and Secrets, and model images."""

import base64
import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from serving import errors
from serving.embedded.kubelet.container.image_volumes import MountedImage
from serving.embedded.kubelet.node import Node
from serving.embedded.pod_spec.volume_mounts import KeyedFile, Mount, keyed_files, kind_of, normal_path
from serving.objects import Object
from serving.resources import kinds
from serving.system import threads

DEFAULT_MODE = 0o400
"""Mode of files of Secrets and ConfigMaps without a mode in the volume. The container's user owns them."""


async def config_maps(node: Node, namespace: str, names: Iterable[str]) -> dict[str, dict[str, bytes]]:
    """Return the data of the ConfigMaps that exist, by name."""
    data: dict[str, dict[str, bytes]] = {}
    for name in names:
        try:
            obj = await node.kube.get(kinds.CONFIG_MAP, namespace, name)
        except errors.NotFound:
            continue
        data[name] = {key: text.encode() for key, text in (obj.get("data") or {}).items()}
        data[name] |= {key: base64.b64decode(text) for key, text in (obj.get("binaryData") or {}).items()}
    return data


async def secrets(node: Node, namespace: str, names: Iterable[str]) -> dict[str, dict[str, bytes]]:
    """Return the data of the Secrets that exist, by name."""
    data: dict[str, dict[str, bytes]] = {}
    for name in names:
        try:
            obj = await node.kube.get(kinds.SECRET, namespace, name)
        except errors.NotFound:
            continue
        data[name] = {key: base64.b64decode(text) for key, text in (obj.get("data") or {}).items()}
    return data


def directory(node: Node, pod: Object, volume: Object, user: int | None) -> str:
    """Make an emptyDir or hostPath volume if it is missing; return its directory or file. Blocks on the disk.

    `user` is the user id, and the group id, of the Pod; None for those of the agent.

    Raises:
        errors.Temporary: the host path does not exist yet, leads to the data directory by a link, or may not
            be made.
    """
    if kind_of(volume) == "emptyDir":
        path = node.data_dir.pod_volume(pod["metadata"]["uid"], volume["name"])
        path.mkdir(parents=True, mode=0o700, exist_ok=True)
        # Even if the directory existed: an agent that was killed after `mkdir` has not set the owner.
        if user is not None and path.stat().st_uid != user:
            os.chown(path, user, user)
        return str(path)
    source = volume["hostPath"]
    namespace = pod["metadata"]["namespace"]
    return node.host_paths.resolve(normal_path(source["path"]), source.get("type", ""), namespace, user)


@dataclass(frozen=True)
class Volumes:
    """A container's mounts, outer before inner, and the images among them."""

    mounts: tuple[Mount, ...]
    images: tuple[MountedImage, ...]


async def of_container(node: Node, pod: Object, container: Object, user: int | None) -> Volumes:
    """Make the volumes of a container, and return its mounts.

    `user` is the user id, and the group id, of the Pod; None for those of the agent.

    Raises:
        errors.Temporary: an object or a path of a volume does not exist yet.
    """
    volumes = {volume["name"]: volume for volume in pod["spec"].get("volumes") or []}
    mounts: list[Mount] = []
    images: list[MountedImage] = []
    for mount in container.get("volumeMounts") or []:
        volume = volumes[mount["name"]]
        target = normal_path(mount["mountPath"])
        kind = kind_of(volume)
        if kind in ("configMap", "secret"):
            mounts.append(Mount(target, None, read_only=True, files=await _files(node, pod, volume)))
        elif kind == "image":
            images.append(await node.images.mount(pod, volume))
            mounts.append(Mount(target, images[-1].path, read_only=True))
        else:
            source = await threads.run_to_end(directory, node, pod, volume, user)
            read_only = bool(mount.get("readOnly"))
            is_own = kind == "emptyDir"
            mounts.append(Mount(target, source, read_only, is_resolved=not is_own, is_own=is_own))
    # By components: a mount comes directly before those inside it, as `/a`, `/a/b`, `/a-b`.
    return Volumes(tuple(sorted(mounts, key=lambda mount: mount.target.split("/"))), tuple(images))


async def _files(node: Node, pod: Object, volume: Object) -> tuple[KeyedFile, ...]:
    """Return the files of a configMap or secret volume; none if it is optional and its object is missing."""
    namespace = pod["metadata"]["namespace"]
    source: dict[str, Any] = volume.get("configMap") or volume.get("secret") or {}
    name = source.get("name") or source.get("secretName") or ""
    kind = "configmap" if "configMap" in volume else "secret"
    read = config_maps if kind == "configmap" else secrets
    data = (await read(node, namespace, [name])).get(name)
    if data is None:
        if source.get("optional"):
            return ()
        raise errors.Temporary("CreateContainerConfigError", f'{kind} "{name}" not found')
    mode = source.get("defaultMode")
    try:
        return keyed_files(data, source, mode=DEFAULT_MODE if mode is None else int(mode))
    except KeyError as error:
        raise errors.Temporary("CreateContainerConfigError", f'{kind} "{name}" has no key {error}') from error

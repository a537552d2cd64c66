"""The kinds that an API server has, by discovery."""

from typing import Any

import orjson

from serving.kube import Kube
from serving.objects import Object
from serving.resources.kinds import Kind


async def resources(kube: Kube, api_version: str) -> list[dict[str, Any]]:
    """The resources of a group and version, by discovery."""
    prefix = f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
    listed: list[dict[str, Any]] = orjson.loads(await kube.raw(prefix))["resources"]
    return listed


async def kind_of(kube: Kube, obj: Object) -> Kind:
    """Return the kind of an object."""
    group, _, version = obj["apiVersion"].rpartition("/")
    for resource in await resources(kube, obj["apiVersion"]):
        if resource["kind"] == obj["kind"] and "/" not in resource["name"]:
            return Kind(group, version, obj["kind"], resource["name"], namespaced=resource["namespaced"])
    raise AssertionError(f"the cluster has no {obj['kind']} of {obj['apiVersion']}")

"""The objects of `kubectl apply -k manifests/install`, read without kubectl."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import yaml

from serving.objects import Object

FOLDER = Path(__file__).parents[2] / "manifests" / "install"
KUSTOMIZATION: dict[str, Any] = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())


@cache
def objects() -> list[Object]:
    """Return all objects in the order of the kustomization; the ConfigMaps lack the hash in their names."""
    read = [
        obj
        for resource in KUSTOMIZATION["resources"]
        for obj in yaml.load_all((FOLDER / resource).read_text(), Loader=yaml.CSafeLoader)
    ]
    return read + [_config_map(generator) for generator in KUSTOMIZATION["configMapGenerator"]]


def _config_map(generator: dict[str, Any]) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": generator["name"], "namespace": generator["namespace"]},
        "data": {name: (FOLDER / name).read_text() for name in generator["files"]},
    }


def of_kind(kind: str) -> list[Object]:
    """Return the objects of a kind."""
    return [obj for obj in objects() if obj["kind"] == kind]


def renamed(namespace: str) -> list[Object]:
    """Return the objects but CRDs in `namespace`, with its name in those of the cluster, and no replicas."""
    own = [obj for obj in objects() if obj["kind"] != "CustomResourceDefinition"]
    renamed: list[Object] = orjson.loads(orjson.dumps(own).replace(b"slipway-system", namespace.encode()))
    for obj in renamed:
        if obj["kind"] in ("ClusterRole", "ClusterRoleBinding"):
            obj["metadata"]["name"] += f"-{namespace}"
        if obj["kind"] == "ClusterRoleBinding":
            obj["roleRef"]["name"] += f"-{namespace}"
        if obj["kind"] == "Deployment":
            obj["spec"]["replicas"] = 0
    return renamed


class Container(NamedTuple):
    """A container of a Deployment, with what it has of its Pod."""

    pod: Object
    """The Pod's template."""
    spec: dict[str, Any]

    @property
    def name(self) -> str:
        return str(self.spec["name"])

    @property
    def ports(self) -> dict[str, int]:
        """Its ports by name."""
        return {port["name"]: port["containerPort"] for port in self.spec["ports"]}

    def option(self, name: str) -> str:
        """Return the value of an option of its command."""
        arguments: list[str] = self.spec["args"]
        return arguments[arguments.index(name) + 1]

    @property
    def environment(self) -> dict[str, str]:
        """Its variables; those of the downward API with a value of their form."""
        return {item["name"]: item.get("value", "from-the-pod") for item in self.spec["env"]}


def containers() -> Iterator[Container]:
    """Yield the containers of all Deployments."""
    for deployment in of_kind("Deployment"):
        template = deployment["spec"]["template"]
        for spec in template["spec"]["containers"]:
            yield Container(template, spec)

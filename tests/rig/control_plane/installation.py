"""The objects of `kubectl apply -k manifests/install`, read without kubectl, and those of overlays."""

import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import yaml

from serving.objects import Object
from tests.rig.control_plane import kubectl

FOLDER = Path(__file__).parents[3] / "manifests" / "install"
OVERLAYS = FOLDER.parent / "overlays"
CLUSTER_WIDE = (
    "ClusterRole",
    "ClusterRoleBinding",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
)
"""Kinds of objects without a namespace, besides the CRDs and the namespace of the installation."""
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


def removals_of_controllers() -> list[tuple[list[str], str]]:
    """Return kinds and name of each `kubectl delete` of docs/cluster.md that keeps models and traffic."""
    text = (FOLDER.parents[1] / "docs" / "cluster.md").read_text()
    section = text.partition("### Models and traffic are kept\n")[2].partition("\n## ")[0]
    commands = re.findall(r"^\$ kubectl delete ([a-z,]+) ([a-z-]+)", section, re.MULTILINE)
    return [(kinds.split(","), name) for kinds, name in commands]


def of_kind(kind: str) -> list[Object]:
    """Return the objects of a kind."""
    return [obj for obj in objects() if obj["kind"] == kind]


def rendered(folder: Path) -> list[Object]:
    """Return the objects of a kustomization, by kubectl."""
    assert kubectl.KUBECTL is not None
    command = [kubectl.KUBECTL, "kustomize", str(folder)]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return list(yaml.load_all(text, Loader=yaml.CSafeLoader))


def renamed(made: list[Object], namespace: str, watched: str = "") -> list[Object]:
    """Return the objects but CRDs in `namespace`, with its name in those of the cluster, and no replicas.

    `watched` is the namespace that they watch, if it is one.
    """
    text = orjson.dumps([obj for obj in made if obj["kind"] != "CustomResourceDefinition"])
    text = text.replace(b"slipway-system", namespace.encode()).replace(b'"team"', orjson.dumps(watched))
    renamed: list[Object] = orjson.loads(text)
    for obj in renamed:
        if obj["kind"] in CLUSTER_WIDE:
            obj["metadata"]["name"] += f"-{namespace}"
        if obj["kind"] == "ValidatingAdmissionPolicyBinding":
            obj["spec"]["policyName"] += f"-{namespace}"
        if obj["kind"] == "ClusterRoleBinding":
            obj["roleRef"]["name"] += f"-{namespace}"
        if obj["kind"] == "Deployment":
            obj["spec"]["replicas"] = 0
    return renamed


class InstalledContainer(NamedTuple):
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


def containers() -> Iterator[InstalledContainer]:
    """Yield the containers of all Deployments."""
    for deployment in of_kind("Deployment"):
        template = deployment["spec"]["template"]
        for spec in template["spec"]["containers"]:
            yield InstalledContainer(template, spec)

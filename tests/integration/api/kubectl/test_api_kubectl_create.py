"""`kubectl create KIND`, `run` and `expose` store the same objects as the YAML that they print."""

import json
import shlex
from typing import Any

import pytest

from tests.rig.control_plane.kubectl import Kubectl, needs_kubectl

pytestmark = needs_kubectl
_SERVER_FIELDS = ("uid", "resourceVersion", "creationTimestamp", "managedFields")


def _stored(kubectl: Kubectl, name: str) -> dict[str, Any]:
    obj: dict[str, Any] = json.loads(kubectl("get", name, "-o", "json"))
    text = json.dumps(obj).replace(obj["metadata"]["uid"], "UID")
    obj = json.loads(text)
    obj["metadata"] = {k: v for k, v in obj["metadata"].items() if k not in _SERVER_FIELDS}
    return obj


@pytest.mark.parametrize(
    "command",
    [
        "create configmap c --from-literal=a=b --from-literal=empty= --from-file=binary=/bin/true",
        "create secret generic s --from-literal=password=ä",
        "create secret docker-registry r --docker-server=a --docker-username=b --docker-password=c",
        "create job j --image=slipway.dev/runtimes/python -- python -c 'print(1)'",
        "create deployment d --image=slipway.dev/runtimes/sklearn --port=8080 --replicas=0",
        "create deployment e --image=slipway.dev/runtimes/sklearn",
        "create service clusterip v --clusterip=None --tcp=80:8080 --tcp=81",
        "run p --image=slipway.dev/runtimes/python --restart=Never --env=A=b --labels=x=y -- -c 'print(1)'",
    ],
)
def test_create_stores_the_same_as_its_yaml(kubectl: Kubectl, command: str) -> None:
    arguments = shlex.split(command)
    end = arguments.index("--") if "--" in arguments else len(arguments)

    def create(*more: str) -> str:
        return kubectl(*arguments[:end], *more, *arguments[end:])

    manifest = create("--dry-run=client", "-o", "yaml")
    assert create("--dry-run=server", "-o", "name")
    name = create("-o", "name").strip()
    stored = _stored(kubectl, name)
    kubectl("delete", name, "--cascade=background", "--grace-period=0", "--force")
    kubectl("create", "-f", "-", stdin=manifest)
    assert stored == _stored(kubectl, name)


def test_create_reports_existing_namespaces_and_bad_values(kubectl: Kubectl) -> None:
    name = f"{kubectl.namespace}-more"
    assert kubectl("create", "namespace", name) == f"namespace/{name} created\n"
    try:
        assert "AlreadyExists" in kubectl.fails("create", "namespace", name)
        output = kubectl.fails("create", "deployment", "d", "--image=i", "--replicas=-1")
        assert "spec.replicas" in output
        assert "-1" in output
        output = kubectl.fails("create", "service", "nodeport", "s", "--tcp=80")
        assert "spec.type" in output
        assert "NodePort" in output
    finally:
        kubectl("delete", "namespace", name)


def test_a_deployment_is_exposed(kubectl: Kubectl) -> None:
    kubectl("create", "deployment", "web", "--image=slipway.dev/runtimes/sklearn", "--port=8080")
    assert kubectl("expose", "deployment", "web", "--port=80", "--cluster-ip=None") == "service/web exposed\n"
    assert kubectl("get", "service", "web", "-o", "jsonpath={.spec.selector.app}") == "web"

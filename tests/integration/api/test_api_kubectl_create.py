"""`kubectl create KIND`, `run` and `expose`: what they send in protobuf or JSON is stored as the same in YAML would be."""

import json
import shlex
from typing import Any

import pytest

from tests.rig.kubectl import Space, needs_kubectl

pytestmark = needs_kubectl
_OF_THE_SERVER = ("uid", "resourceVersion", "creationTimestamp", "managedFields")


def _stored(kubectl: Space, made: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(kubectl("get", made, "-o", "json"))
    text = json.dumps(found).replace(found["metadata"]["uid"], "UID")
    found = json.loads(text)
    found["metadata"] = {k: v for k, v in found["metadata"].items() if k not in _OF_THE_SERVER}
    return found


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
def test_what_is_created_is_what_the_same_yaml_creates(kubectl: Space, command: str) -> None:
    arguments = shlex.split(command)
    at = arguments.index("--") if "--" in arguments else len(arguments)

    def asked(*more: str) -> str:
        return kubectl(*arguments[:at], *more, *arguments[at:])

    manifest = asked("--dry-run=client", "-o", "yaml")
    assert asked("--dry-run=server", "-o", "name")
    made = asked("-o", "name").strip()
    binary = _stored(kubectl, made)
    kubectl("delete", made, "--cascade=background", "--grace-period=0", "--force")
    kubectl("create", "-f", "-", stdin=manifest)
    assert binary == _stored(kubectl, made)


def test_namespaces_are_created_and_refused_as_kubectl_users_expect(kubectl: Space) -> None:
    name = f"{kubectl.namespace}-more"
    assert kubectl("create", "namespace", name) == f"namespace/{name} created\n"
    try:
        assert "AlreadyExists" in kubectl.fails("create", "namespace", name)
        told = kubectl.fails("create", "deployment", "d", "--image=i", "--replicas=-1")
        assert "spec.replicas" in told
        assert "-1" in told
        told = kubectl.fails("create", "service", "nodeport", "s", "--tcp=80")
        assert "spec.type" in told
        assert "NodePort" in told
    finally:
        kubectl("delete", "namespace", name)


def test_a_deployment_is_exposed(kubectl: Space) -> None:
    kubectl("create", "deployment", "web", "--image=slipway.dev/runtimes/sklearn", "--port=8080")
    assert kubectl("expose", "deployment", "web", "--port=80", "--cluster-ip=None") == "service/web exposed\n"
    assert kubectl("get", "service", "web", "-o", "jsonpath={.spec.selector.app}") == "web"

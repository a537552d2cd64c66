"""The real kubectl prints what is not offered and what to use instead, and errors in its own words."""

import json
from pathlib import Path

import pytest

from tests.rig.control_plane.kubectl import Kubectl, needs_kubectl

pytestmark = needs_kubectl

MODEL = '{"apiVersion": "slipway.dev/v1alpha1", "kind": "Model", "metadata": {"name": "digits"}, "spec": {}}'
INFERENCE = """
apiVersion: slipway.dev/v1alpha1
kind: Inference
metadata: {name: digits}
spec: {framework: sklearn, predictors: [{name: stable, modelVersion: v1, trafficWeight: 100}]}
"""
CONTAINER = {"name": "main", "image": "example.com/any:1", "command": ["true"]}
POD = json.dumps(
    {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [CONTAINER]}}
)
DEPLOYMENT = json.dumps(
    {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {
            "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [CONTAINER]}},
        },
    }
)
AUTOSCALER = """
apiVersion: slipway.dev/v1alpha1
kind: Autoscaler
metadata: {name: web}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
  minReplicas: 1
  maxReplicas: 2
"""
MANIFESTS = (INFERENCE, AUTOSCALER, MODEL, POD, DEPLOYMENT)
RUNNING = '{"status": {"phase": "Running"}}'


@pytest.fixture
def filled(kubectl: Kubectl) -> Kubectl:
    """A namespace with a Pod that looks as if it ran, a Deployment, an Inference, a Model, an Autoscaler."""
    kubectl("apply", "-f", "-", stdin="\n---\n".join(MANIFESTS))
    kubectl("patch", "pod", "p", "--subresource=status", "--type=merge", "-p", RUNNING)
    return kubectl


def test_a_command_that_is_not_offered_names_what_to_use_instead(filled: Kubectl, tmp_path: Path) -> None:
    expected = {
        ("exec", "p", "--", "ls"): "exec and cp are not offered: read kubectl logs",
        ("cp", "p:/etc/hosts", str(tmp_path / "hosts")): "exec and cp are not offered: read kubectl logs",
        ("attach", "p"): "attach is not offered: use kubectl logs --follow",
        ("port-forward", "p", "0:8080"): "port-forward is not offered: an Inference is reached at its URL",
        ("debug", "p", "--image=busybox"): "debug is not offered, as a Pod gets no further container",
        ("scale", "inf/digits", "--replicas=3"): "an Inference has no scale: set spec.predictors[].autoScale",
        ("autoscale", "deploy/web", "--max=3"): "horizontalpodautoscalers are not offered: use an Autoscaler",
        ("rollout", "undo", "deploy/web"): "rollout history and undo are not offered",
        ("rollout", "history", "deploy/web"): "apply the earlier manifest or use kubectl set image",
        ("create", "serviceaccount", "a"): "serviceaccounts are not offered: there is one user",
        ("create", "role", "a", "--verb=get", "--resource=pods"): "roles are not offered: there is one user",
        ("create", "cronjob", "a", "--image=a", "--schedule=* * * * *"): "create a Job whenever one is due",
        ("top", "nodes"): "the usage of nodes is not offered: use kubectl top pod",
        ("label", "node", "local", "a=b"): "a Node is read only: it is this machine",
    }
    printed = {command: filled.fails(*command) for command in expected}
    assert {c: printed[c] for c, words in expected.items() if words not in printed[c]} == {}
    assert {c: text for c, text in printed.items() if "panic" in text or "goroutine" in text} == {}


@pytest.mark.parametrize("apply", [("apply",), ("apply", "--server-side"), ("create",)], ids=" ".join)
def test_a_manifest_of_a_kind_without_objects_names_the_kind_to_use(
    kubectl: Kubectl, apply: tuple[str, ...]
) -> None:
    stateful = DEPLOYMENT.replace('"Deployment"', '"StatefulSet"')
    assert "statefulsets.apps are not offered: use a Deployment" in kubectl.fails(
        *apply, "-f", "-", stdin=stateful
    )
    ingress = {"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": {"name": "a"}, "spec": {}}
    printed = kubectl.fails(*apply, "-f", "-", stdin=json.dumps(ingress))
    assert "ingresses.networking.k8s.io are not offered: use an Inference" in printed


def test_kinds_without_objects_are_listed_as_empty_and_explained(kubectl: Kubectl) -> None:
    kinds = "rs,sts,ds,rc,cj,ep,pvc,pv,ing"
    assert "No resources found" in kubectl("get", kinds)
    assert kubectl("get", kinds, "-o", "jsonpath={.items}") == "[]"
    assert "use a Deployment" in kubectl("explain", "statefulset")
    assert kubectl.fails("get", "rs", "nope") == (
        'Error from server (NotFound): replicasets.apps "nope" not found\n'
    )


def test_errors_are_in_kubectls_own_words(kubectl: Kubectl) -> None:
    not_found = "Error from server (NotFound): "
    assert kubectl.fails("get", "pod", "nope") == f'{not_found}pods "nope" not found\n'
    assert kubectl.fails("get", "inf", "nope") == f'{not_found}inferences.slipway.dev "nope" not found\n'
    assert kubectl.fails("get", "node", "nope") == f'{not_found}nodes "nope" not found\n'
    unserved = kubectl.fails("get", "--raw", "/apis/apps/v1/nothings")
    assert unserved == f"{not_found}the server could not find the requested resource\n"
    assert "You must be logged in to the server" in kubectl.fails("get", "pods", "--token=wrong")
    kubectl("create", "configmap", "a")
    assert kubectl.fails("create", "configmap", "a") == (
        'error: failed to create configmap: configmaps "a" already exists\n'
    )

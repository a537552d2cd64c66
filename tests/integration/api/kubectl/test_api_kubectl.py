"""The real kubectl against the embedded API server."""

import json
import time

from tests.rig.control_plane.kubectl import Kubectl, needs_kubectl

pytestmark = needs_kubectl

INFERENCE = """
apiVersion: slipway.dev/v1alpha1
kind: Inference
metadata:
  name: digits
  labels: {team: vision}
spec:
  framework: sklearn
  predictors:
  - {name: stable, modelVersion: v1, trafficWeight: 90}
  - {name: canary, modelVersion: v2, trafficWeight: 10}
"""
DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 1
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - {name: web, image: slipway.dev/runtimes/sklearn, ports: [{containerPort: 8080}]}
"""


def test_a_repeated_apply_changes_nothing(kubectl: Kubectl) -> None:
    for manifest, name in ((INFERENCE, "inference.slipway.dev/digits"), (DEPLOYMENT, "deployment.apps/web")):
        dry = kubectl("apply", "--dry-run=server", "-f", "-", stdin=manifest)
        assert dry == f"{name} created (server dry run)\n"
        assert kubectl("apply", "-f", "-", stdin=manifest) == f"{name} created\n"
        version = kubectl("get", name, "-o", "jsonpath={.metadata.resourceVersion}")
        output = kubectl("apply", "-f", "-", stdin=manifest)
        # For custom kinds kubectl sends a merge patch whose lists lack the defaults, hence "configured".
        assert output == f"{name} {'unchanged' if manifest == DEPLOYMENT else 'configured'}\n"
        assert kubectl("get", name, "-o", "jsonpath={.metadata.resourceVersion}") == version
    changed = INFERENCE.replace("90", "80").replace("10}", "20}")
    assert kubectl("apply", "-f", "-", stdin=changed) == "inference.slipway.dev/digits configured\n"
    weights = "jsonpath={.spec.predictors[*].trafficWeight}"
    assert kubectl("get", "inf", "digits", "-o", weights) == "80 20"


def test_server_side_apply_works_and_reports_conflicts(kubectl: Kubectl) -> None:
    for _ in range(2):
        output = kubectl("apply", "--server-side", "-f", "-", stdin=INFERENCE)
        assert output == "inference.slipway.dev/digits serverside-applied\n"
    second_manager = ("apply", "--server-side", "--field-manager=other", "-f", "-")
    changed = INFERENCE.replace("90", "80")
    assert "conflict" in kubectl.fails(*second_manager, stdin=changed)
    assert "serverside-applied" in kubectl(*second_manager, "--force-conflicts", stdin=changed)


def test_the_error_of_an_invalid_field_has_its_name_and_value(kubectl: Kubectl) -> None:
    output = kubectl.fails("apply", "-f", "-", stdin=INFERENCE.replace("90", "-4"))
    assert "trafficWeight" in output
    assert "-4" in output
    output = kubectl.fails("apply", "-f", "-", stdin=INFERENCE.replace("framework", "frmework"))
    assert "frmework" in output
    assert "NotFound" in kubectl.fails("get", "inf", "digits")


def test_get_supports_tables_yaml_selectors_and_chunks(kubectl: Kubectl) -> None:
    for index in range(5):
        kubectl("apply", "-f", "-", stdin=INFERENCE.replace("digits", f"digits-{index}"))
    table = kubectl("get", "inferences").splitlines()
    assert table[0].split() == ["NAME", "READY", "REASON", "TRAFFIC", "URL", "AGE"]
    assert len(table) == 6
    assert kubectl("get", "inf", "--chunk-size=2", "-o", "name").count("\n") == 5
    assert kubectl("get", "inf", "-l", "team=vision", "-o", "name").count("\n") == 5
    assert "No resources found" in kubectl("get", "inf", "-l", "team!=vision")
    assert "kind: Inference" in kubectl("get", "inf", "digits-1", "-o", "yaml")
    assert kubectl.namespace in kubectl("get", "inf", "--all-namespaces")


def test_watch_prints_a_row_for_every_change(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=INFERENCE)
    watching = kubectl.start("get", "inf", "-w", "--no-headers", "-o", "custom-columns=N:.metadata.name")
    table = kubectl.start("get", "inf", "-w", "--no-headers")
    try:
        assert watching.stdout is not None
        assert table.stdout is not None
        assert watching.stdout.readline() == "digits\n"
        assert table.stdout.readline().startswith("digits ")
        kubectl("label", "inf", "digits", "a=b")
        assert watching.stdout.readline() == "digits\n"
        assert table.stdout.readline().startswith("digits ")
    finally:
        for process in (watching, table):
            process.kill()
            process.communicate()


def test_describe_explain_patch_and_delete(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=INFERENCE + "---" + DEPLOYMENT)
    assert "Traffic Weight" in kubectl("describe", "inf", "digits")
    assert "RollingUpdate" in kubectl("describe", "deployment", "web")
    assert "trafficWeight" in kubectl("explain", "inference.spec.predictors")
    patch = '{"metadata": {"annotations": {"a": "b"}}}'
    assert "patched" in kubectl("patch", "inf", "digits", "--type=merge", "-p", patch)
    assert "patched" in kubectl("patch", "deployment", "web", "-p", '{"spec": {"paused": true}}')
    json_patch = '[{"op": "remove", "path": "/metadata/annotations/a"}]'
    assert "patched" in kubectl("patch", "inf", "digits", "--type=json", "-p", json_patch)
    assert "deleted" in kubectl("delete", "inf", "digits")
    assert "NotFound" in kubectl.fails("get", "inf", "digits")


def test_scale_changes_replicas(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=DEPLOYMENT)
    assert "scaled" in kubectl("scale", "deployment/web", "--replicas=3")
    assert kubectl("get", "deployment", "web", "-o", "jsonpath={.spec.replicas}") == "3"


def test_wait_ends_with_a_condition_and_with_a_deletion(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=INFERENCE)
    waiting = kubectl.start("wait", "--for=condition=Ready", "inf/digits", "--timeout=15s")
    condition = {
        "type": "Ready",
        "status": "True",
        "reason": "Ready",
        "message": "",
        "observedGeneration": 1,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    patch = json.dumps({"status": {"conditions": [condition]}})
    kubectl("patch", "inf", "digits", "--subresource=status", "--type=merge", "-p", patch)
    assert waiting.communicate(timeout=20)[0] == "inference.slipway.dev/digits condition met\n"
    waiting = kubectl.start("wait", "--for=delete", "inf/digits", "--timeout=15s")
    time.sleep(0.2)
    kubectl("delete", "inf", "digits")
    waiting.communicate(timeout=20)
    assert waiting.returncode == 0


def test_cascade_orphan_keeps_the_dependents(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=INFERENCE)
    uid = kubectl("get", "inf", "digits", "-o", "jsonpath={.metadata.uid}")
    child = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": "child",
            "ownerReferences": [
                {"apiVersion": "slipway.dev/v1alpha1", "kind": "Inference", "name": "digits", "uid": uid}
            ],
        },
    }
    kubectl("apply", "-f", "-", stdin=json.dumps(child))
    kubectl("delete", "inf", "digits", "--cascade=orphan")
    assert kubectl("get", "cm", "child", "-o", "jsonpath={.metadata.ownerReferences}") == ""

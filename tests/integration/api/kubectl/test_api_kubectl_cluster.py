"""The real kubectl on a cluster's usual questions: what is there, who may do what, and how the API fares."""

import json

from prometheus_client.parser import text_string_to_metric_families

from tests.rig.control_plane.kubectl import Kubectl, needs_kubectl

pytestmark = needs_kubectl

MODEL = '{"apiVersion": "slipway.dev/v1alpha1", "kind": "Model", "metadata": {"name": "digits"}, "spec": {}}'
INFERENCE = """
apiVersion: slipway.dev/v1alpha1
kind: Inference
metadata: {name: digits}
spec: {framework: sklearn, predictors: [{name: stable, modelVersion: v1, trafficWeight: 100}]}
"""


def config_map(name: str) -> str:
    meta = {"name": name, "labels": {"app": "shop"}}
    return json.dumps({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"k": "v"}})


def test_all_is_what_runs_and_keeps_models(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=f"{INFERENCE}---\n{MODEL}\n---\n{config_map('c')}")
    listed = kubectl("get", "all", "-o", "name")
    assert listed == "inference.slipway.dev/digits\n"
    assert set(kubectl("get", "slipway", "-o", "name").split()) == {
        "inference.slipway.dev/digits",
        "model.slipway.dev/digits",
    }
    assert 'inference.slipway.dev "digits" deleted' in kubectl("delete", "all", "--all")
    assert kubectl("get", "slipway,cm", "-o", "name") == "model.slipway.dev/digits\nconfigmap/c\n"


def test_apply_prunes_with_and_without_a_list_of_kinds(kubectl: Kubectl) -> None:
    prune = ("apply", "--prune", "-l", "app=shop", "-f", "-")
    for options in ((), ("--prune-allowlist=core/v1/ConfigMap",)):
        kubectl("apply", "-f", "-", stdin=config_map("a") + config_map("b"))
        assert "configmap/b pruned" in kubectl(*prune, *options, stdin=config_map("a"))
        assert kubectl("get", "cm", "-o", "name") == "configmap/a\n"


def test_auth_tells_what_would_be_served(kubectl: Kubectl) -> None:
    assert kubectl("auth", "can-i", "create", "inferences") == "yes\n"
    assert kubectl("auth", "can-i", "get", "pods", "--subresource=log") == "yes\n"
    assert kubectl("auth", "can-i", "*", "*") == "yes\n"
    assert kubectl("auth", "can-i", "get", "/metrics") == "yes\n"
    assert "no - exec and cp are not offered" in kubectl.fails(
        "auth", "can-i", "create", "pods", "--subresource=exec"
    )
    assert "no - the verb create is not offered for statefulsets: use a Deployment" in kubectl.fails(
        "auth", "can-i", "create", "statefulsets.apps"
    )
    assert "no - the verb delete is not offered for nodes" in kubectl.fails(
        "auth", "can-i", "delete", "nodes"
    )
    rules = kubectl("auth", "can-i", "--list")
    assert any(
        line.startswith("inferences.slipway.dev ") and "deletecollection" in line
        for line in rules.splitlines()
    )


def test_whoami_is_the_user_of_the_kubeconfig(kubectl: Kubectl) -> None:
    printed = kubectl("auth", "whoami")
    assert "Username" in printed
    assert "slipway" in printed
    assert "system:masters" in printed


def test_objects_are_labelled_set_replaced_compared_and_their_events_listed(kubectl: Kubectl) -> None:
    kubectl("create", "deployment", "web", "--image=slipway.dev/runtimes/sklearn", "--replicas=0")
    assert "labeled" in kubectl("label", "deploy/web", "team=vision")
    assert "annotated" in kubectl("annotate", "deploy/web", "note=first")
    assert "env updated" in kubectl("set", "env", "deploy/web", "A=b")
    assert "image updated" in kubectl("set", "image", "deploy/web", "*=slipway.dev/runtimes/python")
    assert "requirements updated" in kubectl("set", "resources", "deploy/web", "--limits=cpu=1")
    assert "restarted" in kubectl("rollout", "restart", "deploy/web")
    kubectl("apply", "-f", "-", stdin=config_map("a"))
    assert kubectl("diff", "-f", "-", stdin=config_map("a")) == ""
    changed = config_map("a").replace('"v"', '"w"')
    assert "+  k: w" in kubectl.fails("diff", "-f", "-", stdin=changed)
    assert "replaced" in kubectl("replace", "-f", "-", stdin=changed)
    assert "deleted" in kubectl("replace", "--force", "-f", "-", stdin=changed)
    assert "No events found" in kubectl("events")


def test_the_server_tells_its_version_kinds_and_health(kubectl: Kubectl) -> None:
    assert "Server Version: v1.32.0+slipway." in kubectl("version")
    assert "is running at" in kubectl("cluster-info")
    listed = kubectl("api-resources", "-o", "name").split()
    assert {"inferences.slipway.dev", "pods", "nodes", "deployments.apps"} <= set(listed)
    assert {"slipway.dev/v1alpha1", "apps/v1", "v1"} <= set(kubectl("api-versions").split())
    assert kubectl("get", "--raw", "/readyz") == "ok"


def counts(page: str, family: str, **labels: str) -> float:
    families = {entry.name: entry for entry in text_string_to_metric_families(page)}
    return sum(
        sample.value
        for sample in families[family.removesuffix("_total")].samples
        if sample.name in (family, f"{family}_count") and labels.items() <= sample.labels.items()
    )


def test_raw_metrics_count_requests_by_verb_resource_and_code(kubectl: Kubectl) -> None:
    before = kubectl("get", "--raw", "/metrics")
    kubectl("get", "inf")
    kubectl.fails("get", "inf", "nope")
    kubectl("auth", "whoami")
    after = kubectl("get", "--raw", "/metrics")
    for verb, group, resource, code in (
        ("LIST", "slipway.dev", "inferences", "200"),
        ("GET", "slipway.dev", "inferences", "404"),
        ("POST", "authentication.k8s.io", "selfsubjectreviews", "201"),
        ("GET", "", "", "200"),
    ):
        labels = {"verb": verb, "group": group, "resource": resource}
        family = "apiserver_request_total"
        assert counts(after, family, **labels, code=code) > counts(before, family, **labels, code=code), (
            labels
        )
        family = "apiserver_request_duration_seconds"
        assert counts(after, family, **labels) > counts(before, family, **labels), labels
    assert counts(after, "apiserver_storage_objects", resource="namespaces") >= 2
    assert counts(after, "process_resident_memory_bytes") > 0

"""The manifests of an installation agree with each other, with the settings and with the code's requests.

A cluster's own rules (schemas, admission) are checked by `tests/contracts/install/test_install.py`.
"""

import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from serving import job_kinds
from serving.cli.config.configuration import load
from serving.cli.config.schema import Configuration
from serving.cli.machine.components import DECLARATIONS
from serving.data_dir import DataDir
from serving.objects import Object
from serving.resources import kinds
from tests.rig.control_plane import api_requests, granted_rights, installation
from tests.rig.control_plane.installation import FOLDER, KUSTOMIZATION, InstalledContainer
from tests.rig.control_plane.kubectl import KUBECTL

ROOT = FOLDER.parents[1]
NAMESPACE = "slipway-system"
CONTAINERS = list(installation.containers())
ids = "{0.name}".format
UNBOUND = {"slipway-secrets", "slipway-usage", "slipway-view", "slipway-edit"}
"""ClusterRoles that administrators bind, or that are aggregated to those of users."""
UNITS = {"Gi": 1024**3, "Mi": 1024**2}


def settings(container: InstalledContainer) -> Configuration:
    """The configuration of a component: the file, and the variables of its container."""
    file = FOLDER / "config.yaml"
    return load(DataDir(Path("/nowhere")), file, environment=container.environment).configuration


def quantity(text: str) -> int:
    return int(text[:-2]) * UNITS[text[-2:]]


def one(name: str) -> InstalledContainer:
    return next(container for container in CONTAINERS if container.name == name)


def test_every_file_of_the_folder_is_applied() -> None:
    files = {str(path.relative_to(FOLDER)) for path in FOLDER.rglob("*.yaml")}
    generated = {name for generator in KUSTOMIZATION["configMapGenerator"] for name in generator["files"]}
    assert files == {"kustomization.yaml", *KUSTOMIZATION["resources"], *generated}


def test_the_documented_removal_of_the_controllers_names_each_of_their_objects() -> None:
    removed = {(kind, name) for kinds, name in installation.removals_of_controllers() for kind in kinds}
    installed = {(each["kind"].lower(), each["metadata"]["name"]) for each in installation.objects()}
    assert removed == {(kind, name) for kind, name in installed if name == "slipway-controllers"}
    assert len(removed) == 7


def test_every_crd_is_installed() -> None:
    installed = {crd["metadata"]["name"] for crd in installation.of_kind("CustomResourceDefinition")}
    assert installed == {f"{kind.plural}.{kind.group}" for kind in kinds.OWN}


def test_no_object_is_in_another_namespace() -> None:
    cluster_wide = {"Namespace", "CustomResourceDefinition", *installation.CLUSTER_WIDE}
    for obj in installation.objects():
        expected = None if obj["kind"] in cluster_wide else NAMESPACE
        assert obj["metadata"].get("namespace") == expected, obj["metadata"]["name"]
    assert [obj["metadata"]["name"] for obj in installation.of_kind("Namespace")] == [NAMESPACE]


def test_the_namespace_enforces_the_restricted_profile() -> None:
    (namespace,) = installation.of_kind("Namespace")
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"


@pytest.mark.parametrize("container", CONTAINERS, ids=ids)
def test_a_container_keeps_the_rules_of_the_restricted_profile(container: InstalledContainer) -> None:
    pod, own = container.pod["spec"]["securityContext"], container.spec["securityContext"]
    assert pod["runAsNonRoot"] is True
    assert pod["runAsUser"] > 0
    assert pod["seccompProfile"] == {"type": "RuntimeDefault"}
    assert own == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert {"hostNetwork", "hostPID", "hostIPC"}.isdisjoint(container.pod["spec"])
    assert not any("hostPath" in volume for volume in container.pod["spec"]["volumes"])


@pytest.mark.parametrize("container", CONTAINERS, ids=ids)
def test_a_component_has_a_valid_configuration_and_may_write_where_it_must(
    container: InstalledContainer,
) -> None:
    assert container.spec["command"] == ["slipway", "component", container.name]
    assert container.name in DECLARATIONS
    settings(container)
    volumes = {volume["name"]: volume for volume in container.pod["spec"]["volumes"]}
    mounts = {mount["mountPath"]: volumes[mount["name"]] for mount in container.spec["volumeMounts"]}
    config = Path(container.option("--config"))
    assert mounts[str(config.parent)]["configMap"]["name"] in {
        generator["name"]
        for generator in KUSTOMIZATION["configMapGenerator"]
        if config.name in generator["files"]
    }
    assert all("emptyDir" in mounts[path] for path in (container.option("--data-dir"), "/tmp"))


def test_the_components_of_a_gateway_share_a_data_directory_and_a_name() -> None:
    gateway, activator = one("gateway"), one("activator")
    assert gateway.pod == activator.pod
    assert gateway.option("--data-dir") == activator.option("--data-dir")
    for container in (gateway, activator):
        named = {item["name"]: item.get("valueFrom") for item in container.spec["env"]}
        assert named["SLIPWAY_GATEWAY__NAME"] == {"fieldRef": {"fieldPath": "metadata.name"}}


@pytest.mark.parametrize("container", CONTAINERS, ids=ids)
def test_leases_are_in_the_namespace_of_the_installation(container: InstalledContainer) -> None:
    named = {item["name"]: item.get("valueFrom") for item in container.spec["env"]}
    assert named["SLIPWAY_CONTROLLERS__LEASE_NAMESPACE"] == {"fieldRef": {"fieldPath": "metadata.namespace"}}


def test_one_of_the_controllers_works() -> None:
    assert settings(one("controllers")).controllers.leader_election


@pytest.mark.parametrize("container", CONTAINERS, ids=ids)
def test_probes_ask_the_port_of_health(container: InstalledContainer) -> None:
    port = int(container.option("--health-port"))
    for probe, path in (
        ("startupProbe", "/livez"),
        ("livenessProbe", "/livez"),
        ("readinessProbe", "/readyz"),
    ):
        asked = container.spec[probe]["httpGet"]
        assert (asked["path"], container.ports[asked["port"]]) == (path, port)


def test_the_ports_of_containers_are_those_of_the_settings() -> None:
    gateway = settings(one("gateway"))
    assert one("gateway").ports["http"] == gateway.gateway.port
    assert one("gateway").ports["metrics"] == gateway.gateway.metrics_port
    assert one("activator").ports["act-metrics"] == settings(one("activator")).activator.metrics_port
    assert one("controllers").ports["metrics"] == settings(one("controllers")).autoscaler.metrics_port


@pytest.mark.parametrize(
    "deployment", installation.of_kind("Deployment"), ids=lambda d: d["metadata"]["name"]
)
def test_a_pod_has_no_two_ports_with_one_name_or_number(deployment: dict[str, Any]) -> None:
    mine = [c for c in CONTAINERS if c.pod == deployment["spec"]["template"]]
    ports = [port for container in mine for port in container.ports.items()]
    assert len({name for name, _ in ports}) == len({number for _, number in ports}) == len(ports)


def anti_affinity(deployment: Object) -> list[Object]:
    """Return the terms by which the Pods of a Deployment avoid each other."""
    preferred = deployment["spec"]["template"]["spec"]["affinity"]["podAntiAffinity"]
    return [term["podAffinityTerm"] for term in preferred["preferredDuringSchedulingIgnoredDuringExecution"]]


def test_pods_of_one_revision_prefer_other_nodes_also_where_nodes_have_no_zone() -> None:
    for deployment in installation.of_kind("Deployment"):
        # On a node without the label of one constraint the scheduler ignores all that only prefer.
        assert "topologySpreadConstraints" not in deployment["spec"]["template"]["spec"]
        terms = anti_affinity(deployment)
        assert "kubernetes.io/hostname" in {term["topologyKey"] for term in terms}
        assert {tuple(term["matchLabelKeys"]) for term in terms} == {("pod-template-hash",)}


def selecting() -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the selectors of Pods, with the names of their objects."""
    for obj in installation.objects():
        name, spec = f"{obj['kind']} {obj['metadata']['name']}", obj.get("spec", {})
        if obj["kind"] == "Service":
            yield name, spec["selector"]
        elif obj["kind"] in ("Deployment", "PodDisruptionBudget"):
            yield name, spec["selector"]["matchLabels"]
        elif obj["kind"] == "NetworkPolicy":
            yield name, spec["podSelector"].get("matchLabels", {})
            for rule in spec.get("ingress", []):
                for peer in rule.get("from", []):
                    if "podSelector" in peer:
                        yield name, peer["podSelector"]["matchLabels"]
        if obj["kind"] == "Deployment":
            for term in anti_affinity(obj):
                yield name, term["labelSelector"]["matchLabels"]


def selected(labels: dict[str, str]) -> list[dict[str, Any]]:
    templates = [deployment["spec"]["template"] for deployment in installation.of_kind("Deployment")]
    return [pod for pod in templates if labels.items() <= pod["metadata"]["labels"].items()]


def test_every_selector_selects_the_pods_of_one_deployment() -> None:
    selectors = list(selecting())
    assert len(selectors) > 10
    wrong = [(name, labels) for name, labels in selectors if labels and len(selected(labels)) != 1]
    assert wrong == []


@pytest.mark.parametrize("policy", installation.of_kind("NetworkPolicy"), ids=lambda p: p["metadata"]["name"])
def test_a_network_policy_opens_ports_of_the_pods_that_it_selects(policy: dict[str, Any]) -> None:
    pods = selected(policy["spec"]["podSelector"].get("matchLabels", {}))
    ports = {name for container in CONTAINERS if container.pod in pods for name in container.ports}
    opened = {port["port"] for rule in policy["spec"].get("ingress", []) for port in rule["ports"]}
    assert opened <= ports
    assert policy["spec"]["policyTypes"] == ["Ingress"]


def test_only_the_listener_of_the_gateway_is_open_to_everybody() -> None:
    policies = [policy["spec"] for policy in installation.of_kind("NetworkPolicy")]
    opened = [
        [port["port"] for port in rule["ports"]]
        for policy in policies
        for rule in policy.get("ingress", [])
        if "from" not in rule
    ]
    assert opened == [["http"]]
    assert {"podSelector": {}, "policyTypes": ["Ingress"]} in policies


def test_clients_reach_the_listener_by_the_address_in_statuses() -> None:
    (service,) = installation.of_kind("Service")
    (port,) = service["spec"]["ports"]
    assert port["targetPort"] in one("gateway").ports
    expected = f"{service['metadata']['name']}.{service['metadata']['namespace']}.svc"
    assert (settings(one("gateway")).gateway.address, port["port"]) == (expected, 80)


def test_bounded_memory_of_a_component_fits_into_its_limits() -> None:
    limits = {c.name: quantity(c.spec["resources"]["limits"]["memory"]) for c in CONTAINERS}
    assert settings(one("gateway")).gateway.heap_bytes < limits["gateway"]
    assert settings(one("activator")).activator.bytes < limits["activator"]
    volumes = {volume["name"]: volume for volume in one("controllers").pod["spec"]["volumes"]}
    assert settings(one("controllers")).store.max_bytes < quantity(volumes["data"]["emptyDir"]["sizeLimit"])


def test_a_gateway_has_the_time_that_its_drain_takes() -> None:
    gateway = one("gateway")
    times = settings(gateway).gateway
    grace = gateway.pod["spec"]["terminationGracePeriodSeconds"]
    assert grace >= times.leave_seconds + times.drain_seconds + 5


@pytest.mark.parametrize(
    "deployment", installation.of_kind("Deployment"), ids=lambda d: d["metadata"]["name"]
)
def test_a_drained_node_takes_one_of_two_replicas(deployment: dict[str, Any]) -> None:
    assert deployment["spec"]["replicas"] == 2
    labels = deployment["spec"]["selector"]
    budgets = [
        b["spec"] for b in installation.of_kind("PodDisruptionBudget") if b["spec"]["selector"] == labels
    ]
    assert [budget["maxUnavailable"] for budget in budgets] == [1]


def test_images_are_set_in_one_place_and_are_of_this_version() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    tags = {image["name"]: image["newTag"] for image in KUSTOMIZATION["images"]}
    assert {container.spec["image"] for container in CONTAINERS} == set(tags)
    assert set(tags.values()) == {version}


def test_images_of_model_servers_are_built_with_those_of_the_components() -> None:
    runtimes = yaml.safe_load((FOLDER / "config.yaml").read_text())["runtime_images"]
    (components,) = KUSTOMIZATION["images"]
    assert f"{runtimes['prefix']}/components" == components["newName"]
    assert runtimes["tag"] == components["newTag"]


def test_every_account_and_role_that_is_named_exists() -> None:
    accounts = {account["metadata"]["name"] for account in installation.of_kind("ServiceAccount")}
    assert {container.pod["spec"]["serviceAccountName"] for container in CONTAINERS} == accounts
    bound = set()
    for kind in ("Role", "ClusterRole"):
        roles = {role["metadata"]["name"] for role in installation.of_kind(kind)}
        for binding in installation.of_kind(f"{kind}Binding"):
            assert binding["roleRef"]["kind"] == kind
            assert binding["roleRef"]["name"] in roles
            assert [(s["kind"], s["namespace"]) for s in binding["subjects"]] == [
                ("ServiceAccount", NAMESPACE)
            ]
            assert {subject["name"] for subject in binding["subjects"]} <= accounts
            bound.add(binding["roleRef"]["name"])
    assert {role["metadata"]["name"] for role in installation.of_kind("ClusterRole")} - bound == UNBOUND


def rules(*names: str) -> set[tuple[str, str, str]]:
    """The rights of roles: group, resource and verb."""
    return {
        (group, resource, verb)
        for role in [*installation.of_kind("ClusterRole"), *installation.of_kind("Role")]
        if role["metadata"]["name"] in names
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


@pytest.mark.parametrize("account", api_requests.PACKAGES)
def test_an_account_has_the_rights_for_the_requests_of_its_components(account: str) -> None:
    needed = set(api_requests.of_account(account))
    assert len(needed) > 8
    assert needed - rules(account, "slipway-secrets") == set()


def test_the_controllers_may_hold_jobs_of_every_shipped_kind_and_of_no_other() -> None:
    shipped = {(row.api_kind.group, row.api_kind.plural) for row in job_kinds.shipped()}
    groups = {group for group, _ in shipped}
    given = {right for right in rules("slipway-controllers") if right[0] in groups}
    captures = {("batch", "jobs", verb) for verb in ("create", "delete")}
    assert given == captures | {(*kind, verb) for kind in shipped for verb in ("list", "watch", "patch")}


@pytest.mark.parametrize(
    "resource", ["deployments", "services", "poddisruptionbudgets", "daemonsets", "autoscalers"]
)
def test_the_controllers_may_write_and_watch_the_children_of_an_inference(resource: str) -> None:
    verbs = {verb for _, name, verb in rules("slipway-controllers") if name == resource}
    assert {"list", "watch", "create", "patch", "delete"} <= verbs


def test_no_rule_has_a_wildcard_or_a_right_that_makes_an_administrator() -> None:
    given = rules("slipway-controllers", "slipway-gateway")
    assert not any("*" in word for right in given for word in right)
    assert not {resource for _, resource, _ in given} & {
        "secrets",
        "nodes/proxy",
        "pods/exec",
        "clusterroles",
    }


def test_no_right_is_given_twice() -> None:
    given = Counter(
        (right.account, right.group, right.resource, right.verb)
        for right in granted_rights.granted(installation.objects())
    )
    assert max(given.values()) == 1, given.most_common(3)


@pytest.mark.kubectl
@pytest.mark.skipif(KUBECTL is None, reason="kubectl is not installed: set KUBECTL or put it on PATH")
def test_kustomize_makes_these_objects() -> None:
    made = installation.rendered(FOLDER)
    assert len(made) == len(installation.objects())
    (config,) = (obj["metadata"]["name"] for obj in made if obj["kind"] == "ConfigMap")
    for deployment in (obj for obj in made if obj["kind"] == "Deployment"):
        pod = deployment["spec"]["template"]["spec"]
        assert [v["configMap"]["name"] for v in pod["volumes"] if "configMap" in v] == [config]
        images = {container["image"] for container in pod["containers"]}
        assert images == {"{newName}:{newTag}".format(**KUSTOMIZATION["images"][0])}

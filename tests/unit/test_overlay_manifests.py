"""The overlays of `manifests/overlays` agree with the installation that they change."""

from typing import Any

import yaml

from serving.cli.config.configuration import load
from serving.cli.config.schema import Configuration
from serving.data_dir import DataDir
from serving.objects import Object
from tests.rig.control_plane import granted_rights, installation
from tests.rig.control_plane.installation import FOLDER, OVERLAYS, InstalledContainer
from tests.rig.control_plane.kubectl import needs_kubectl

WATCHED = OVERLAYS / "namespace" / "watched"
Rule = tuple[str, str, str]


def given(objects: list[Object], *, in_roles_of: str) -> set[tuple[str, Rule]]:
    """The rights in a namespace, or by ClusterRoles if it is empty, with their accounts."""
    return {
        (right.account, (right.group, right.resource, right.verb))
        for right in granted_rights.granted(objects)
        if right.namespace == in_roles_of
    }


def test_roles_of_one_namespace_have_the_rules_of_the_cluster_roles_that_a_role_can_have() -> None:
    roles = list(yaml.safe_load_all((WATCHED / "rbac.yaml").read_text()))
    namespace = yaml.safe_load((WATCHED / "kustomization.yaml").read_text())["namespace"]
    for role in roles:
        role["metadata"]["namespace"] = namespace
    everywhere = given(installation.objects(), in_roles_of="")
    of_the_cluster = {
        (account, rule)
        for account, rule in everywhere
        if rule[:2] == ("", "nodes") or (rule[1] == "namespaces" and rule[2] != "get")
    }
    assert len(of_the_cluster) == 4
    assert given(roles, in_roles_of=namespace) == everywhere - of_the_cluster


def configurations(objects: list[Object]) -> dict[str, tuple[Configuration, dict[str, Any]]]:
    """The configuration and the spec of each container."""
    return {
        spec["name"]: (
            load(
                DataDir(FOLDER / "nowhere"),
                FOLDER / "config.yaml",
                environment=InstalledContainer(obj, spec).environment,
            ).configuration,
            spec,
        )
        for obj in objects
        if obj["kind"] == "Deployment"
        for spec in obj["spec"]["template"]["spec"]["containers"]
    }


def replicas(objects: list[Object]) -> dict[str, int]:
    return {
        obj["metadata"]["name"]: obj["spec"]["replicas"] for obj in objects if obj["kind"] == "Deployment"
    }


class TestRendered:
    """What kubectl makes of each overlay."""

    pytestmark = needs_kubectl

    def test_one_namespace_is_watched_by_all_containers_and_no_cluster_role_is_bound(self) -> None:
        made = installation.rendered(OVERLAYS / "namespace")
        watched = {
            name: config.controllers.watch_namespace for name, (config, _) in configurations(made).items()
        }
        assert watched == dict.fromkeys(("controllers", "gateway", "activator"), "team")
        assert given(made, in_roles_of="") == set()
        assert given(made, in_roles_of="team")

    def test_small_has_one_replica_of_each_with_smaller_requests(self) -> None:
        made = installation.rendered(OVERLAYS / "small")
        assert replicas(made) == {"slipway-controllers": 1, "slipway-gateway": 1}
        for name, (_, spec) in configurations(made).items():
            before = next(container.spec for container in installation.containers() if container.name == name)
            assert spec["resources"]["limits"] == before["resources"]["limits"]
            for resource, amount in spec["resources"]["requests"].items():
                if resource != "ephemeral-storage":
                    assert cores_or_bytes(amount) < cores_or_bytes(before["resources"]["requests"][resource])

    def test_production_has_three_gateways_in_zones_whose_heap_fits_their_limit(self) -> None:
        made = installation.rendered(OVERLAYS / "production")
        assert replicas(made) == {"slipway-controllers": 2, "slipway-gateway": 3}
        config, spec = configurations(made)["gateway"]
        assert config.gateway.concurrency == cores_or_bytes(spec["resources"]["requests"]["cpu"])
        assert config.gateway.heap_bytes < cores_or_bytes(spec["resources"]["limits"]["memory"])
        (gateway,) = (
            obj
            for obj in made
            if obj["metadata"]["name"] == "slipway-gateway" and "replicas" in obj.get("spec", {})
        )
        spread = gateway["spec"]["template"]["spec"]["topologySpreadConstraints"]
        assert {s["topologyKey"]: s["whenUnsatisfiable"] for s in spread} == {
            "topology.kubernetes.io/zone": "DoNotSchedule",
        }

    def test_every_metrics_port_of_a_service_is_read_by_one_service_monitor(self) -> None:
        made = installation.rendered(OVERLAYS / "production")
        services = {
            name: obj
            for obj in made
            if obj["kind"] == "Service" and (name := obj["metadata"]["labels"].get("slipway.dev/metrics"))
        }
        monitors = [obj["spec"] for obj in made if obj["kind"] == "ServiceMonitor"]
        read = {
            m["selector"]["matchLabels"]["slipway.dev/metrics"]: {e["port"] for e in m["endpoints"]}
            for m in monitors
        }
        assert read == {name: {p["name"] for p in obj["spec"]["ports"]} for name, obj in services.items()}
        ports = {name: number for c in installation.containers() for name, number in c.ports.items()}
        for name, service in services.items():
            for port in service["spec"]["ports"]:
                expected = 9100 if name == "controllers" else ports[port["targetPort"]]
                assert port["port"] == expected


def cores_or_bytes(amount: str) -> float:
    units = {"Gi": 1024.0**3, "Mi": 1024.0**2, "m": 0.001}
    unit = next((unit for unit in units if amount.endswith(unit)), "")
    return float(amount.removesuffix(unit)) * units.get(unit, 1.0)

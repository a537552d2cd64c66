import json
from pathlib import Path

import pytest

from serving.router.envoy import weights, wire
from serving.router.envoy.bootstrap import bootstrap
from serving.router.envoy.render import EMPTY, Renderer, Resource
from serving.router.envoy.weights import Weights
from serving.router.plan.route_table import Assembly, RoutePlan
from serving.router.plan.service import Cluster, service_of
from serving.settings import GatewaySettings
from tests.rig.gateway import endpoint_slice, replaced, route

GOLDEN = Path(__file__).parents[3] / "golden" / "router"
SETTINGS = GatewaySettings()
SOCKETS = {name: f"/data/gateway/{name}.sock" for name in ("admin", "probe", "changes")}


def plan() -> RoutePlan:
    digits = route(
        "digits",
        [("stable", 9000), ("candidate", 1000)],
        unweighted=["next"],
        sticky={"header": "X-User-Id", "salt": "spring"},
    )
    slices = {
        "digits-stable": [endpoint_slice("digits-stable", ["127.77.0.3", "127.77.0.2"])],
        "digits-candidate": [endpoint_slice("digits-candidate", ["127.77.0.4"])],
    }
    away = route("away", [("only", 10_000)], namespace="team")
    return replaced(Assembly(), [service_of(digits, slices), service_of(away, {})])


def decoded(resource: Resource) -> object:
    return wire.decode("Any", resource.content)


def written() -> dict[str, Weights]:
    return {
        prefix: found
        for prefix, found in Renderer(SETTINGS, "/activator").render(plan()).weights.items()
        if found
    }


def compare(name: str, found: object) -> None:
    path = GOLDEN / name
    text = json.dumps(found, indent=1, sort_keys=True) + "\n"
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        pytest.fail(f"{path} did not exist: look at it, and commit it")
    assert text == path.read_text()


def test_resources_are_as_in_the_golden_file() -> None:
    found = Renderer(SETTINGS, "/activator").render(plan())
    routes = {name: resource for name, (resource, _) in found.routes.items()}
    for kind, resources in (("clusters", found.clusters), ("endpoints", found.endpoints), ("routes", routes)):
        compare(f"{kind}.json", {name: decoded(resource) for name, resource in resources.items() if resource})


def test_weights_are_as_in_the_golden_file() -> None:
    compare("weights.json", wire.decode("Any", weights.layer(written())))


def test_the_bootstrap_is_as_in_the_golden_file() -> None:
    compare("bootstrap.json", bootstrap(SETTINGS, port=8080, sockets=SOCKETS))


def test_weights_are_read_back_as_they_were_written() -> None:
    layer = wire.decode("Any", weights.layer(written()))["layer"]
    assert weights.read({key: round(value) for key, value in layer.items()}) == written()


def test_the_same_plan_has_the_same_versions_and_another_has_others() -> None:
    first, again = (Renderer(SETTINGS, "/activator").render(plan()) for _ in range(2))
    assert first == again
    assert first.routes["public"] != Renderer(SETTINGS, "/activator").render(RoutePlan()).routes["public"]


def test_a_change_of_endpoints_renders_those_endpoints_alone() -> None:
    assembly, renderer = Assembly(), Renderer(SETTINGS, "/activator")
    one = route("digits", [("a", 5000), ("b", 5000)])
    slices = {f"digits-{a}": [endpoint_slice(f"digits-{a}", ["127.77.0.2"])] for a in "ab"}
    renderer.render(replaced(assembly, [service_of(one, slices)]))
    slices["digits-a"] = [endpoint_slice("digits-a", ["127.77.0.2", "127.77.0.3"])]
    found = renderer.render(replaced(assembly, [service_of(one, slices)]))
    assert (list(found.endpoints), found.weights, found.routes) == (["default/digits-a/8080"], {}, {})


def test_from_zero_to_a_replica_and_back_is_one_change_of_endpoints() -> None:
    assembly, renderer = Assembly(), Renderer(SETTINGS, "/data/activator")
    one = route("digits", [("a", 5000), ("b", 5000)], on_demand="ab")
    socket = f"/data/activator/{Cluster('default/digits-a/8080', ()).socket}"
    up = {"digits-a": [endpoint_slice("digits-a", ["127.77.0.2"])]}
    first = renderer.render(replaced(assembly, [service_of(one, {})]))
    assert EMPTY not in {found and found.version for found in first.endpoints.values()}
    seen = []
    for slices in (up, {}):
        found = renderer.render(replaced(assembly, [service_of(one, slices)]))
        assert (list(found.endpoints), found.weights, found.routes) == (["default/digits-a/8080"], {}, {})
        changed = found.endpoints["default/digits-a/8080"]
        assert changed is not None
        first_choice, last = wire.decode("Any", changed.content)["endpoints"]
        seen.append([endpoint["endpoint"]["address"] for endpoint in first_choice.get("lb_endpoints", [])])
        assert last["priority"] == 1
        assert [e["endpoint"]["address"] for e in last["lb_endpoints"]] == [{"pipe": {"path": socket}}]
    assert seen == [[{"socket_address": {"address": "127.77.0.2", "port_value": 8080}}], []]


def test_a_salt_with_any_characters_is_only_ever_a_digest_in_the_pattern() -> None:
    odd = route("digits", [("a", 5000), ("b", 5000)], sticky={"header": "x-user", "salt": "\\9 (.*"})
    slices = {f"digits-{a}": [endpoint_slice(f"digits-{a}", ["127.77.0.2"])] for a in "ab"}
    found = Renderer(SETTINGS, "/activator").render(replaced(Assembly(), [service_of(odd, slices)]))
    content = found.routes["public"][0].content
    assert b"(.*$" not in content.replace(b"^(.*)$", b"")
    assert b"\\9" not in content


def test_envoy_watches_no_file_however_many_services_there_are() -> None:
    assert "path_config_source" not in json.dumps(bootstrap(SETTINGS, port=1, sockets=SOCKETS))

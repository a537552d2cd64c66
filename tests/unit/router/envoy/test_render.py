import json
from pathlib import Path

import pytest

from serving.router.envoy import clusters, messages_pb2, module, weights
from serving.router.envoy.bootstrap import bootstrap
from serving.router.envoy.clusters import SocketFolders
from serving.router.envoy.render import Renderer
from serving.router.envoy.resource import NO_ENDPOINTS, encoded_resource
from serving.router.envoy.routes import BRIDGE_FILTER
from serving.router.envoy.weights import Weights
from serving.router.plan.route_table import RoutePlanChanges, RouteTable
from serving.router.plan.service import Cluster, Endpoint, gateway_service, socket_name
from serving.settings import GatewaySettings
from tests.rig.envoy_json import decoded
from tests.rig.servers.gateway import endpoint_slice, replaced, route

GOLDEN = Path(__file__).parents[3] / "golden" / "router"
SETTINGS = GatewaySettings()
SOCKETS = {name: f"/data/gateway/{name}.sock" for name in ("admin", "probe", "changes")}


def plan() -> RoutePlanChanges:
    digits = route(
        "digits",
        [("stable", 9000), ("canary", 1000)],
        unweighted=["next"],
        sticky={"header": "X-User-Id", "salt": "spring"},
    )
    slices = {
        "digits-stable": [endpoint_slice("digits-stable", ["127.77.0.3", "127.77.0.2"])],
        "digits-canary": [endpoint_slice("digits-canary", ["127.77.0.4"])],
    }
    away = route("away", [("only", 10_000)], namespace="team")
    return replaced(RouteTable(), [gateway_service(digits, slices), gateway_service(away, {})])


def rendered_weights() -> dict[str, Weights]:
    changes = Renderer(SETTINGS, SocketFolders("/activator", "/sockets")).render(plan())
    return {prefix: entries for prefix, entries in changes.weights.items() if entries}


def decoded_layers() -> dict[str, dict[str, object]]:
    layers = {name: weights.layer(name, rendered_weights()) for name in weights.LAYERS}
    return {
        name: decoded(encoded_resource(messages_pb2.Runtime, layer).content) for name, layer in layers.items()
    }


def compare(name: str, value: object) -> None:
    path = GOLDEN / name
    text = json.dumps(value, indent=1, sort_keys=True) + "\n"
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        pytest.fail(f"{path} did not exist: review and commit it")
    assert text == path.read_text()


def test_resources_match_the_golden_file() -> None:
    changes = Renderer(SETTINGS, SocketFolders("/activator", "/sockets")).render(plan())
    routes = {name: resource for name, (resource, _) in changes.routes.items()}
    kinds = {"clusters": changes.clusters, "endpoints": changes.endpoints, "routes": routes}
    for kind, resources in kinds.items():
        compare(f"{kind}.json", {name: decoded(item.content) for name, item in resources.items() if item})


def test_weights_match_the_golden_file() -> None:
    compare("weights.json", decoded_layers())


def test_bootstrap_matches_the_golden_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "library", lambda: Path("/module/library.so"))
    monkeypatch.setattr(module, "digest", lambda: "digest")
    compare("bootstrap.json", bootstrap(SETTINGS, port=8080, sockets=SOCKETS))


def test_mark_is_that_of_all_connections_to_replicas_and_changes_nothing_else() -> None:
    marked = bootstrap(SETTINGS, port=8080, sockets=SOCKETS, mark=0x53)
    assert marked.pop("cluster_manager") == {
        "upstream_bind_config": {
            "socket_options": [{"level": 1, "name": 36, "int_value": 0x53, "state": "STATE_PREBIND"}]
        }
    }
    assert marked == bootstrap(SETTINGS, port=8080, sockets=SOCKETS)


def test_weights_in_the_runtime_are_parsed_as_rendered() -> None:
    entries: dict[str, float] = {}
    for layer in decoded_layers().values():
        part = layer.get("layer", {})
        assert isinstance(part, dict)
        entries |= part
    assert weights.parse({key: round(value) for key, value in entries.items()}) == rendered_weights()


def test_versions_change_only_with_the_plan() -> None:
    first, second = (
        Renderer(SETTINGS, SocketFolders("/activator", "/sockets")).render(plan()) for _ in range(2)
    )
    assert first == second
    assert (
        first.routes["public"]
        != Renderer(SETTINGS, SocketFolders("/activator", "/sockets"))
        .render(RoutePlanChanges())
        .routes["public"]
    )


def test_a_change_of_endpoints_renders_only_those_endpoints() -> None:
    table, renderer = RouteTable(), Renderer(SETTINGS, SocketFolders("/activator", "/sockets"))
    digits = route("digits", [("a", 5000), ("b", 5000)])
    slices = {f"digits-{a}": [endpoint_slice(f"digits-{a}", ["127.77.0.2"])] for a in "ab"}
    renderer.render(replaced(table, [gateway_service(digits, slices)]))
    slices["digits-a"] = [endpoint_slice("digits-a", ["127.77.0.2", "127.77.0.3"])]
    changes = renderer.render(replaced(table, [gateway_service(digits, slices)]))
    assert (list(changes.endpoints), changes.weights, changes.routes) == (["default/digits-a/8080"], {}, {})


def test_list_of_models_is_rendered_when_a_service_without_predictors_becomes_a_language_model() -> None:
    table, renderer = RouteTable(), Renderer(SETTINGS, SocketFolders("/activator", "/sockets"))
    digits = route("digits", [])
    renderer.render(replaced(table, [gateway_service(digits, {})]))
    for usage, is_listed in (("continuous", True), ("none", False)):
        digits["spec"]["tokenUsage"] = usage
        changes = renderer.render(replaced(table, [gateway_service(digits, {})]))
        assert (b"/default/openai" in changes.routes["public"].resource.content) == is_listed


def test_scaling_from_zero_and_back_changes_only_one_set_of_endpoints() -> None:
    table, renderer = RouteTable(), Renderer(SETTINGS, SocketFolders("/data/activator", "/sockets"))
    digits = route("digits", [("a", 5000), ("b", 5000)], on_demand="ab")
    socket = f"/data/activator/{socket_name('default/digits-a/8080')}"
    up = {"digits-a": [endpoint_slice("digits-a", ["127.77.0.2"])]}
    first = renderer.render(replaced(table, [gateway_service(digits, {})]))
    assert NO_ENDPOINTS not in {item and item.version for item in first.endpoints.values()}
    addresses = []
    for slices in (up, {}):
        changes = renderer.render(replaced(table, [gateway_service(digits, slices)]))
        assert (list(changes.endpoints), changes.weights, changes.routes) == (
            ["default/digits-a/8080"],
            {},
            {},
        )
        changed = changes.endpoints["default/digits-a/8080"]
        assert changed is not None
        first_choice, fallback = decoded(changed.content)["endpoints"]
        addresses.append(
            [endpoint["endpoint"]["address"] for endpoint in first_choice.get("lb_endpoints", [])]
        )
        assert fallback["priority"] == 1
        assert [e["endpoint"]["address"] for e in fallback["lb_endpoints"]] == [{"pipe": {"path": socket}}]
    assert addresses == [[{"socket_address": {"address": "127.77.0.2", "port_value": 8080}}], []]


def test_arm_that_speaks_http2_has_no_bridge_and_the_other_arm_has() -> None:
    digits = route("digits", [("a", 5000), ("b", 5000)], h2c="a")
    slices = {f"digits-{a}": [endpoint_slice(f"digits-{a}", ["127.77.0.2"])] for a in "ab"}
    renderer = Renderer(SETTINGS, SocketFolders("/activator", "/sockets"))
    changes = renderer.render(replaced(RouteTable(), [gateway_service(digits, slices)]))
    protocols = {}
    for name, item in changes.clusters.items():
        assert item is not None
        (options,) = decoded(item.content)["typed_extension_protocol_options"].values()
        protocols[name] = options["explicit_http_config"]
    assert protocols == {
        "default/digits-a/8080": {"http2_protocol_options": {}},
        "default/digits-b/8080": {"http_protocol_options": {}},
    }
    (by_host, _) = decoded(changes.routes["public"][0].content)["virtual_hosts"]
    a, b = by_host["routes"][0]["route"]["weighted_clusters"]["clusters"]
    assert a["typed_per_filter_config"][BRIDGE_FILTER]["disabled"] is True
    assert "typed_per_filter_config" not in b


def test_salt_appears_in_the_pattern_only_as_a_digest() -> None:
    digits = route("digits", [("a", 5000), ("b", 5000)], sticky={"header": "x-user", "salt": "\\9 (.*"})
    slices = {f"digits-{a}": [endpoint_slice(f"digits-{a}", ["127.77.0.2"])] for a in "ab"}
    changes = Renderer(SETTINGS, SocketFolders("/activator", "/sockets")).render(
        replaced(RouteTable(), [gateway_service(digits, slices)])
    )
    content = changes.routes["public"][0].content
    assert b"(.*$" not in content.replace(b"^(.*)$", b"")
    assert b"\\9" not in content


def test_only_connections_of_http2_have_the_bridge_of_grpc() -> None:
    public, _ = bootstrap(SETTINGS, port=1, sockets=SOCKETS)["static_resources"]["listeners"]
    filters = {
        chain["name"]: {item["name"] for item in chain["filters"][0]["typed_config"]["http_filters"]}
        for chain in public["filter_chains"]
    }
    assert filters["http2"] - filters["http1"] == {BRIDGE_FILTER}
    assert not filters["http1"] - filters["http2"]


def test_bootstrap_reads_no_configuration_from_files() -> None:
    assert "path_config_source" not in json.dumps(bootstrap(SETTINGS, port=1, sockets=SOCKETS))


def test_endpoint_of_a_unix_socket_is_a_pipe_in_the_pods_folder() -> None:
    cluster = Cluster("default/digits/8080", (Endpoint("127.77.0.2", 8080, unix=True),))
    assignment = clusters.load_assignment(cluster, SocketFolders("/activator", "/sockets"))
    (endpoint,) = assignment.endpoints[0].lb_endpoints
    assert endpoint.endpoint.address.pipe.path == "/sockets/127.77.0.2:8080"

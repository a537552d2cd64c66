"""Our messages as Envoy itself reads them: a wrong field number would be an unknown or another field."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
from google.protobuf import any_pb2
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message

from serving.router.envoy import messages_pb2 as envoy
from serving.router.envoy import weights
from serving.router.envoy.clusters import SocketFolders
from serving.router.envoy.render import Renderer, ResourceChanges
from serving.router.envoy.resource import encoded_resource, resource
from serving.router.plan.route_table import RouteTable
from serving.router.plan.service import gateway_service
from serving.settings import GatewaySettings
from tests.rig.envoy_json import as_json, decoded, message_in, parsed
from tests.rig.servers.gateway import endpoint_slice, gateway_rig, replaced, route

SETTINGS = GatewaySettings(upstream_idle_seconds=7.25, retry_budget_percent=12.5)
PROTOCOL_MESSAGES = {
    "DeltaDiscoveryRequest",
    "DeltaDiscoveryResponse",
    "Resource",
    "Status",
    "EncodedVirtualHosts",
}
"""Messages that are in no dump; with a wrong number in one of them Envoy would receive nothing."""


def changes_with_every_field() -> ResourceChanges:
    """Return the product's resources, with a value where the product sends zero."""
    caller = {"header": "x-user", "salt": "s"}
    routes = [
        route("digits", [("a", 9000), ("b", 1000)], sticky=caller, on_demand="a", h2c="b"),
        route("plain", [("a", 9000), ("b", 1000)]),
        route("away", [("only", 10_000)]),
    ]
    routes[0]["spec"]["tokenUsage"] = "continuous"
    routes[1]["spec"] |= {
        "timeouts": {"request": "20s", "perTry": "5s"},
        "retries": {"on": ["Unsent", "Lost", "Unavailable"], "attempts": 3},
    }
    for backend in routes[1]["spec"]["backends"]:
        backend |= {
            "timeouts": {"request": "30s"},
            "retries": {"on": ["Lost"], "attempts": 1},
            "limits": {"requests": 77},
            "ejection": {"consecutiveServerErrors": 9, "duration": "17s", "maxPercent": 21},
        }
    services = [f"{name}-{arm}" for name in ("digits", "plain") for arm in "ab"]
    slices = {service: [endpoint_slice(service, ["127.77.0.2"])] for service in services}
    plan = replaced(RouteTable(), [gateway_service(item, slices) for item in routes])
    changes = Renderer(SETTINGS, SocketFolders("/activator", "/sockets")).render(plan)
    clusters = {}
    for name, item in changes.clusters.items():
        assert item is not None
        cluster = message_in(any_pb2.Any.FromString(item.content))
        assert isinstance(cluster, envoy.Cluster)
        cluster.common_lb_config.healthy_panic_threshold.value = 33
        cluster.outlier_detection.enforcing_success_rate.value = 1
        clusters[name] = resource(cluster)
    return replace(changes, clusters=clusters)


def contents(changes: ResourceChanges) -> dict[tuple[str, str], bytes]:
    """Return the encoded resources by type and name, as in Envoy's dump."""
    sent = {("cluster", name): item.content for name, item in changes.clusters.items() if item}
    sent |= {("endpoint_config", name): item.content for name, item in changes.endpoints.items() if item}
    sent |= {("route_config", name): item.content for name, (item, _) in changes.routes.items()}
    entries = {prefix: entries for prefix, entries in changes.weights.items() if entries}
    layers = {name: weights.layer(name, entries) for name in weights.LAYERS}
    return sent | {
        ("runtime", name): encoded_resource(envoy.Runtime, layer).content for name, layer in layers.items()
    }


def in_dump(value: Any) -> Iterator[tuple[tuple[str, str], dict[str, Any]]]:
    """Yield the resources in the response to /config_dump."""
    if isinstance(value, list):
        for item in value:
            yield from in_dump(item)
    elif isinstance(value, dict):
        for kind, item in value.items():
            if isinstance(item, dict) and kind in ("cluster", "route_config", "endpoint_config"):
                yield (kind, item.get("name") or item.get("cluster_name")), item
            else:
                yield from in_dump(item)


def only(value: Any, pattern: Any) -> Any:
    """Return the part of a JSON value that has the keys of the pattern."""
    if isinstance(value, dict) and isinstance(pattern, dict):
        return {key: only(value[key], pattern[key]) for key in pattern if key in value}
    if isinstance(value, list) and isinstance(pattern, list):
        return [only(*pair) for pair in zip(value, pattern, strict=True)]
    return value


def fields_of(message: Message) -> Iterator[str]:
    """Yield the fields with a value, here and in all nested messages."""
    if isinstance(message, any_pb2.Any):
        yield from fields_of(message_in(message))
        return
    for field, value in message.ListFields():
        yield field.full_name
        is_map = field.message_type is not None and field.message_type.GetOptions().map_entry
        items = value.values() if is_map else value if field.is_repeated else [value]
        for item in items:
            if isinstance(item, Message):
                yield from fields_of(item)


def declared(messages: Iterator[Descriptor]) -> Iterator[str]:
    for message in messages:
        if message.name not in PROTOCOL_MESSAGES and not message.GetOptions().map_entry:
            yield from (field.full_name for field in message.fields)
            yield from declared(message.nested_types)


async def test_envoy_reads_every_field_as_it_was_sent(tmp_path: Path) -> None:
    changes = changes_with_every_field()
    async with gateway_rig(tmp_path) as rig:
        await rig.xds.apply(changes)
        dump = orjson.loads(await rig.admin._request("GET", "/config_dump?include_eds"))
        runtime = await rig.admin.runtime()
    read = dict(in_dump(dump))
    weights_sent: dict[str, Any] = {}
    for (kind, name), content in contents(changes).items():
        sent = decoded(content)
        if kind == "runtime":
            weights_sent |= sent.get("layer", {})
        elif kind == "endpoint_config":  # Envoy adds a health status and more
            assert only(read[kind, name], sent) == sent
        else:
            assert as_json(parsed(read[kind, name])) == sent
    assert {key: value for key, value in runtime.items() if "/" in key} == weights_sent != {}
    assert runtime["http.max_requests_per_io_cycle"] > 0, "of the bootstrap's own layer"


def test_compared_resources_have_every_declared_field() -> None:
    sent = {
        field
        for content in contents(changes_with_every_field()).values()
        for field in fields_of(any_pb2.Any.FromString(content))
    }
    assert set(declared(envoy.DESCRIPTOR.message_types_by_name.values())) - sent == set()

"""Virtual hosts and path routes of the public listener, and the routes of the private listener.

By host, each service is a virtual host, which Envoy finds by hash. By path, all services are entries of one
tree of prefixes (`prefix_match_map`) in one virtual host, as every request would search a list of routes
linearly. A host, an entry or a configuration is an encoded part of a message. `render` concatenates the
parts, as protobuf merges concatenated encodings.
"""

import hashlib
from collections.abc import Iterable

from google.protobuf.any_pb2 import Any
from google.protobuf.struct_pb2 import Struct, Value
from google.protobuf.wrappers_pb2 import BoolValue, UInt32Value, UInt64Value

from serving.resources import names
from serving.router.envoy import messages_pb2 as envoy
from serving.router.envoy import retries, token_filters
from serving.router.envoy.resource import duration, encode, pack
from serving.router.plan.service import ClusterSegment, GatewayService, ProbeRoute, Sticky
from serving.settings import GatewaySettings

CALLER_HEADER = "x-slipway-caller"
"""Header with the identity that `ASSIGN_FILTER` assigns to a caller without the sticky header. The routes of
sticky services remove it from the request to the replica; other routes pass it on unread."""
ASSIGN_FILTER = "slipway.assign-caller"
"""Name of the filter that assigns an identity to a caller (`bootstrap.ASSIGN_CALLER`); disabled unless a
route enables it."""

BRIDGE_FILTER = "slipway.grpc-bridge"
"""Name of the filter that turns a gRPC request into one of HTTP/1.1."""


def virtual_host(service: GatewayService, key_prefix: str, settings: GatewaySettings) -> bytes:
    """Return a service's address by host, as an encoded part of a route configuration.

    Args:
        service: its ring and policy.
        key_prefix: `weights.key_prefix` of the service.
        settings: the gateway's.
    """
    name = service.host(settings.domain)
    host = envoy.VirtualHost(
        name=name,
        domains=[name],
        routes=[_route(service, "/", key_prefix, settings)],
        request_body_buffer_limit=UInt64Value(value=settings.retry_body_bytes),
    )
    return _host_entry(encode(host))


def path_entry(service: GatewayService, key_prefix: str, settings: GatewaySettings) -> bytes:
    """Return a service's address by path, as an encoded part of the virtual host of all paths."""
    return _tree_entry(service.prefix, _route(service, service.prefix, key_prefix, settings))


def models_entry(namespace: str, model_names: Iterable[str]) -> bytes:
    """Return the address of all language models of a namespace, as an encoded part of the virtual host of all
    paths.

    `token_filters.MODELS_FILTER` changes the path to that of the model that the body names, and Envoy chooses
    the route again. A request that the filter neither routes nor answers keeps this route, which answers with
    404.
    """
    prefix = models_prefix(namespace)
    match = envoy.RouteMatch(prefix=prefix)
    tokens = token_filters.of_models(f"/{namespace}/", model_names)
    # Envoy takes a request's filters from its first route. The chosen service may be sticky, so the filter is
    # enabled here; without the name of a sticky header it does nothing.
    assign = pack(envoy.FilterConfig(config=pack(envoy.LuaPerRoute(filter_context=Struct()))))
    route = envoy.Route(
        match=match,
        metadata=envoy.Metadata(filter_metadata=tokens.metadata),
        direct_response=_reply(404, f"use {prefix}v1/chat/completions, .../completions or .../models"),
        typed_per_filter_config={**tokens.filters, ASSIGN_FILTER: assign},
    )
    return _tree_entry(prefix, route)


def models_prefix(namespace: str) -> str:
    """Return the path of the address of all language models of a namespace."""
    return f"/{namespace}/openai/"


def probe_entry(probe: ProbeRoute, settings: GatewaySettings) -> bytes:
    """Return a backend's private address, as an encoded part of the virtual host of all paths."""
    action = envoy.RouteAction(
        cluster=probe.cluster,
        prefix_rewrite="/",
        timeout=duration(0),  # none: the prober has its own
        idle_timeout=duration(settings.stream_idle_seconds),
    )
    return _tree_entry(probe.prefix, envoy.Route(match=envoy.RouteMatch(prefix=probe.prefix), route=action))


def paths_host(entries: bytes, not_found: str, settings: GatewaySettings) -> bytes:
    """Return the virtual host of all paths as an encoded part of a route configuration.

    Args:
        entries: concatenated encoded parts of the host, which protobuf merges.
        not_found: the message of the 404.
        settings: the gateway's.
    """
    missing = envoy.Route(match=envoy.RouteMatch(prefix="/"), direct_response=_reply(404, not_found))
    host = envoy.VirtualHost(
        name="by-path",
        domains=["*"],
        matcher=envoy.Matcher(on_no_match=_on_match(missing)),
        request_body_buffer_limit=UInt64Value(value=settings.retry_body_bytes),
    )
    if entries:
        path = envoy.HttpRequestHeaderMatchInput(header_name=":path")
        host.matcher.matcher_tree.input.CopyFrom(
            envoy.TypedExtensionConfig(name="path", typed_config=pack(path))
        )
    return _host_entry(encode(host) + entries)


def unavailable_host(message: str, settings: GatewaySettings) -> bytes:
    """Return a virtual host that answers every request with 503, so that clients try again."""
    unavailable = _unavailable(envoy.RouteMatch(prefix="/"), message, settings)
    host = envoy.VirtualHost(name="all", domains=["*"], routes=[unavailable])
    return _host_entry(encode(host))


def route_configuration(name: str, hosts: bytes) -> bytes:
    """Return one route configuration, encoded.

    Args:
        name: its name.
        hosts: concatenated encoded parts with its virtual hosts.
    """
    head = envoy.RouteConfiguration(
        name=name,
        # A client sends `host:port` with the listener's port; the address of a service is its host.
        ignore_port_in_host_matching=True,
    )
    return encode(head) + hosts


def _host_entry(host: bytes) -> bytes:
    return encode(envoy.EncodedVirtualHosts(virtual_hosts=[host]))


def _tree_entry(prefix: str, route: envoy.Route) -> bytes:
    """Return an encoded part of the virtual host of all paths: the route of the paths with a prefix."""
    tree = envoy.Matcher.MatcherTree(
        prefix_match_map=envoy.Matcher.MatcherTree.MatchMap(map={prefix: _on_match(route)})
    )
    host = envoy.VirtualHost(matcher=envoy.Matcher(matcher_tree=tree))
    return encode(host)


def _on_match(route: envoy.Route) -> envoy.Matcher.OnMatch:
    return envoy.Matcher.OnMatch(action=envoy.TypedExtensionConfig(name="route", typed_config=pack(route)))


def _route(service: GatewayService, prefix: str, key_prefix: str, settings: GatewaySettings) -> envoy.Route:
    """Return the route of a service for the paths with a prefix, which Envoy replaces by `/`.

    A service without a backend that can serve gets a route that answers with 503.
    """
    match = envoy.RouteMatch(prefix=prefix)
    if not service.ring:
        message = f"{service.namespace}/{service.name}: {service.unavailable}"
        return _unavailable(match, message, settings)
    tokens = token_filters.of_service(service)
    route = envoy.Route(
        match=match,
        route=envoy.RouteAction(
            weighted_clusters=_weighted_clusters(service, key_prefix),
            prefix_rewrite="" if prefix == "/" else "/",
            # Envoy's default of 15 s kills generations; the idle timeout cuts a silent stream.
            timeout=duration(service.policy.request_timeout),
            idle_timeout=duration(settings.stream_idle_seconds),
            retry_policy=retries.of_service(service, settings),
        ),
        typed_per_filter_config=tokens.filters,
    )
    if tokens.metadata:
        route.metadata.CopyFrom(envoy.Metadata(filter_metadata=tokens.metadata))
    if service.sticky is not None:
        route.request_headers_to_remove.append(CALLER_HEADER)
        if len(service.ring) > 1:
            _make_sticky(route, service.sticky)
    return route


def _unavailable(match: envoy.RouteMatch, message: str, settings: GatewaySettings) -> envoy.Route:
    """Return the route that answers with 503."""
    return envoy.Route(
        match=match,
        direct_response=_reply(503, message),
        response_headers_to_add=[_header("retry-after", str(settings.retry_after_seconds))],
    )


def _make_sticky(route: envoy.Route, sticky: Sticky) -> None:
    """Hash by the caller's header, or by the identity that the filter assigns to a caller without it."""
    header = Struct(fields={"header": _string(sticky.header)})
    route.route.hash_policy.extend(_hash_policy(name, sticky) for name in (sticky.header, CALLER_HEADER))
    route.metadata.filter_metadata[ASSIGN_FILTER].CopyFrom(header)
    lua = envoy.FilterConfig(config=pack(envoy.LuaPerRoute(filter_context=header)))
    route.typed_per_filter_config[ASSIGN_FILTER].CopyFrom(pack(lua))


def _weighted_clusters(service: GatewayService, key_prefix: str) -> envoy.WeightedCluster:
    weighted = envoy.WeightedCluster(
        clusters=[
            envoy.WeightedCluster.ClusterWeight(
                name=segment.cluster,
                # With a key prefix Envoy reads the weight from its runtime, and the route stays equal.
                weight=UInt32Value(value=1 if key_prefix else segment.size),
                response_headers_to_add=_arm_headers(segment),
                typed_per_filter_config=_filters_of(segment),
            )
            for segment in service.ring
        ],
        runtime_key_prefix=key_prefix,
    )
    if service.sticky is not None and len(service.ring) > 1:
        weighted.use_hash_policy.CopyFrom(BoolValue(value=True))
    return weighted


def _filters_of(segment: ClusterSegment) -> dict[str, Any]:
    """Return the configuration of an arm's filters: replicas that speak HTTP/2 need no bridge for gRPC."""
    return {BRIDGE_FILTER: pack(envoy.GrpcBridgePerRoute(disabled=True))} if segment.h2c else {}


def _arm_headers(segment: ClusterSegment) -> list[envoy.HeaderValueOption]:
    """Return the response headers that name the arm and its model version."""
    headers = [_header(names.ARM_HEADER, segment.arm)]
    if segment.model_version:
        headers.append(_header(names.SERVED_VERSION_HEADER, segment.model_version))
    return headers


def _hash_policy(header: str, sticky: Sticky) -> envoy.RouteAction.HashPolicy:
    """Hash `salt:value`; the salt is hashed first, so that none of its characters has a meaning in RE2."""
    salt = hashlib.sha256(sticky.salt.encode()).hexdigest()[:16]
    salted = envoy.RegexMatchAndSubstitute(
        pattern=envoy.RegexMatcher(regex="^(.*)$"), substitution=f"{salt}:\\1"
    )
    return envoy.RouteAction.HashPolicy(
        header=envoy.RouteAction.HashPolicy.Header(header_name=header, regex_rewrite=salted), terminal=True
    )


def _reply(status: int, message: str) -> envoy.DirectResponseAction:
    """Return a local reply; the connection manager's `local_reply_config` makes it JSON."""
    return envoy.DirectResponseAction(status=status, body=envoy.DataSource(inline_string=message))


def _header(key: str, value: str) -> envoy.HeaderValueOption:
    """Return the option that appends a header.

    To overwrite a replica's costs 2 % of a small request, and replicas are trusted.
    """
    return envoy.HeaderValueOption(header=envoy.HeaderValue(key=key, value=value))


def _string(value: str) -> Value:
    return Value(string_value=value)

"""Envoy's messages, as this package writes them in JSON, in protobuf's binary form, and the little that is read.

A message that is already encoded goes into a larger one as it is: what one service needs is encoded once and then
copied. `_FIELDS` has the messages and fields that we use and no others; to write another is a mistake of ours and
raises KeyError, to read one is not. Numbers: the .proto files of
envoy/api/v3 and cncf/xds v3, which never change a number.
"""

from collections.abc import Callable, Mapping
from typing import Any

from serving.protobuf import Content, content, double, field, parts, real, text, varint, whole

Json = Mapping[str, Any]
"""A message by its JSON names. Where it has a message, it may have `bytes` instead: that message, encoded; where it has
a list or a map, the encoded fields of the whole list or map."""

_ENUMS = {
    "DiscoveryType": {"EDS": 3},
    "ApiVersion": {"V3": 2},
    "LbPolicy": {"LEAST_REQUEST": 1},
}
_FIELDS: dict[str, dict[str, tuple[int, str]]] = {
    "DeltaDiscoveryRequest": {
        "type_url": (2, "string"),
        "resource_names_subscribe": (3, "list string"),
        "resource_names_unsubscribe": (4, "list string"),
        "initial_resource_versions": (5, "map string"),
        "response_nonce": (6, "string"),
        "error_detail": (7, "RpcStatus"),
    },
    "DeltaDiscoveryResponse": {
        "resources": (2, "list Resource"),
        "type_url": (4, "string"),
        "nonce": (5, "string"),
        "removed_resources": (6, "list string"),
    },
    "Resource": {"version": (1, "string"), "resource": (2, "Any"), "name": (3, "string")},
    "RpcStatus": {"message": (2, "string")},
    "RouteConfiguration": {
        "name": (1, "string"),
        "virtual_hosts": (2, "list VirtualHost"),
        "request_headers_to_remove": (8, "list string"),
        "ignore_port_in_host_matching": (14, "bool"),
    },
    "VirtualHost": {
        "name": (1, "string"),
        "domains": (2, "list string"),
        "routes": (3, "list Route"),
        "matcher": (21, "Matcher"),
    },
    "Route": {
        "match": (1, "RouteMatch"),
        "route": (2, "RouteAction"),
        "metadata": (4, "Metadata"),
        "direct_response": (7, "DirectResponseAction"),
        "response_headers_to_add": (10, "list HeaderValueOption"),
        "typed_per_filter_config": (13, "map Any"),
    },
    "RouteMatch": {"prefix": (1, "string")},
    "RouteAction": {
        "cluster": (1, "string"),
        "weighted_clusters": (3, "WeightedCluster"),
        "prefix_rewrite": (5, "string"),
        "timeout": (8, "duration"),
        "retry_policy": (9, "RetryPolicy"),
        "hash_policy": (15, "list HashPolicy"),
    },
    "WeightedCluster": {
        "clusters": (1, "list ClusterWeight"),
        "runtime_key_prefix": (2, "string"),
        "use_hash_policy": (5, "BoolValue"),
    },
    "ClusterWeight": {
        "name": (1, "string"),
        "weight": (2, "UInt32Value"),
        "response_headers_to_add": (5, "list HeaderValueOption"),
    },
    "HashPolicy": {"header": (1, "HashPolicy.Header"), "terminal": (4, "bool")},
    "HashPolicy.Header": {"header_name": (1, "string"), "regex_rewrite": (2, "RegexMatchAndSubstitute")},
    "RegexMatchAndSubstitute": {"pattern": (1, "RegexMatcher"), "substitution": (2, "string")},
    "RegexMatcher": {"regex": (2, "string")},
    "RetryPolicy": {
        "retry_on": (1, "string"),
        "num_retries": (2, "UInt32Value"),
        "retry_priority": (4, "Typed3"),
        "retry_host_predicate": (5, "list Typed3"),
        "host_selection_retry_max_attempts": (6, "varint"),
    },
    "Typed3": {"name": (1, "string"), "typed_config": (3, "Any")},
    "PreviousHostsPredicate": {},
    "PreviousPrioritiesConfig": {"update_frequency": (1, "varint")},
    "Metadata": {"filter_metadata": (1, "map Struct")},
    "FilterConfig": {"config": (1, "Any")},
    "LuaPerRoute": {"filter_context": (4, "Struct")},
    "DirectResponseAction": {"status": (1, "varint"), "body": (2, "DataSource")},
    "DataSource": {"inline_string": (3, "string")},
    "HeaderValueOption": {"header": (1, "HeaderValue")},
    "HeaderValue": {"key": (1, "string"), "value": (2, "string")},
    "Matcher": {"matcher_tree": (2, "MatcherTree"), "on_no_match": (3, "OnMatch")},
    "MatcherTree": {"input": (1, "TypedExtensionConfig"), "prefix_match_map": (3, "MatchMap")},
    "MatchMap": {"map": (1, "map OnMatch")},
    "OnMatch": {"action": (2, "TypedExtensionConfig")},
    "TypedExtensionConfig": {"name": (1, "string"), "typed_config": (2, "Any")},
    "HttpRequestHeaderMatchInput": {"header_name": (1, "string")},
    "Cluster": {
        "name": (1, "string"),
        "type": (2, "DiscoveryType"),
        "eds_cluster_config": (3, "EdsClusterConfig"),
        "connect_timeout": (4, "duration"),
        "lb_policy": (6, "LbPolicy"),
        "circuit_breakers": (10, "CircuitBreakers"),
        "common_lb_config": (27, "CommonLbConfig"),
        "typed_extension_protocol_options": (36, "map Any"),
    },
    "EdsClusterConfig": {"eds_config": (1, "ConfigSource")},
    "ConfigSource": {"ads": (3, "AggregatedConfigSource"), "resource_api_version": (6, "ApiVersion")},
    "AggregatedConfigSource": {},
    "CircuitBreakers": {"thresholds": (1, "list Thresholds")},
    "Thresholds": {
        "max_connections": (2, "UInt32Value"),
        "max_pending_requests": (3, "UInt32Value"),
        "max_requests": (4, "UInt32Value"),
        "retry_budget": (8, "RetryBudget"),
    },
    "RetryBudget": {"budget_percent": (1, "Percent"), "min_retry_concurrency": (2, "UInt32Value")},
    "Percent": {"value": (1, "double")},
    "CommonLbConfig": {"healthy_panic_threshold": (1, "Percent")},
    "ClusterLoadAssignment": {"cluster_name": (1, "string"), "endpoints": (2, "list LocalityLbEndpoints")},
    "LocalityLbEndpoints": {"lb_endpoints": (2, "list LbEndpoint"), "priority": (5, "varint")},
    "LbEndpoint": {"endpoint": (1, "Endpoint")},
    "Endpoint": {"address": (1, "Address")},
    "Address": {"socket_address": (1, "SocketAddress"), "pipe": (2, "Pipe")},
    "Pipe": {"path": (1, "string")},
    "SocketAddress": {"address": (2, "string"), "port_value": (3, "varint")},
    "Runtime": {"name": (1, "string"), "layer": (2, "Struct")},
    "HttpProtocolOptions": {
        "common_http_protocol_options": (1, "CommonHttpProtocolOptions"),
        "explicit_http_config": (3, "ExplicitHttpConfig"),
    },
    "CommonHttpProtocolOptions": {"idle_timeout": (1, "duration")},
    "ExplicitHttpConfig": {"http_protocol_options": (1, "Http1ProtocolOptions")},
    "Http1ProtocolOptions": {},
}
_WRAPPERS = ("UInt32Value", "BoolValue")
_PLAIN: Mapping[str, Callable[[Content], Any]] = {
    "varint": whole,
    "bool": lambda value: bool(whole(value)),
    "double": real,
    "string": text,
}


def encode(message: str, value: Json | bytes) -> bytes:
    """Return a message of a type of `_FIELDS` (or `Any`, whose type is its `@type`) in binary.

    Raises:
        KeyError: a field, an enum's value or a type that `_FIELDS` does not have.
    """
    if isinstance(value, bytes):
        return value
    if message == "Any":
        url = value["@type"]
        inner = {name: item for name, item in value.items() if name != "@type"}
        return field(1, url.encode()) + field(2, encode(url.rpartition(".")[2], inner))
    if message == "Struct":
        return b"".join(_entry(1, name, _plain(plain)) for name, plain in value.items())
    fields = _FIELDS[message]
    return b"".join(_member(*fields[name], item) for name, item in value.items())


def decode(message: str, data: bytes) -> dict[str, Any]:
    """Return the fields that `_FIELDS` has, in the order of the bytes; durations in their shortest form.

    Raises:
        ValueError: not a message of this type (Malformed).
    """
    if message == "Any":
        url, inner = _two(data)
        return {"@type": url, **decode(url.rpartition(".")[2], inner)}
    if message == "Struct":
        pairs = (_two(content(value)) for _, value in parts(data))
        return {key: _read_plain(plain) for key, plain in pairs}
    names = {number: (name, kind) for name, (number, kind) in _FIELDS.get(message, {}).items()}
    found: dict[str, Any] = {}
    for number, value in parts(data):
        if number not in names:
            continue
        name, kind = names[number]
        shape, _, element = kind.rpartition(" ")
        if shape == "map":
            key, item = _two(content(value))
            found.setdefault(name, {})[key] = _value(element, item)
        elif shape == "list":
            found.setdefault(name, []).append(_value(element, value))
        else:
            found[name] = _value(kind, value)
    return found


def _member(number: int, kind: str, value: Any) -> bytes:
    shape, _, element = kind.rpartition(" ")
    if shape and isinstance(value, bytes):
        return value
    if shape == "list":
        return b"".join(_member(number, element, item) for item in value)
    if shape == "map":
        return b"".join(_entry(number, name, _bytes(element, item)) for name, item in value.items())
    if kind in ("varint", "bool") or kind in _ENUMS:
        plain = _ENUMS[kind][value] if kind in _ENUMS else int(value)
        return varint(number, plain)
    if kind == "double":
        return double(number, value)
    return field(number, _bytes(kind, value))


def _bytes(kind: str, value: Any) -> bytes:
    if kind == "string":
        return str(value).encode()
    if kind in _WRAPPERS:
        return varint(1, int(value))
    return _duration(value) if kind == "duration" else encode(kind, value)


def _value(kind: str, value: Content) -> Any:
    if kind in _ENUMS:
        return next((name for name, number in _ENUMS[kind].items() if number == value), value)
    if kind in _PLAIN:
        return _PLAIN[kind](value)
    if kind in _WRAPPERS:
        plain = whole(dict(parts(content(value))).get(1, 0))
        return bool(plain) if kind == "BoolValue" else plain
    if kind == "duration":
        found = {number: whole(part) for number, part in parts(content(value))}
        return f"{found.get(1, 0) + found.get(2, 0) / 1_000_000_000:g}s"
    return decode(kind, content(value))


def _plain(value: str | float) -> bytes:
    """google.protobuf.Value: its field 2 is a number, its field 3 a string."""
    if isinstance(value, str):
        return field(3, value.encode())
    return double(2, value)


def _read_plain(data: bytes) -> str | float:
    number, value = next(parts(data), (3, b""))
    return real(value) if number == 2 else text(value)


def _two(data: bytes) -> tuple[str, bytes]:
    """The fields 1 and 2 of a pair of a map, or of an Any."""
    found = dict(parts(data))
    return text(found.get(1, b"")), content(found.get(2, b""))


def _entry(number: int, key: str, value: bytes) -> bytes:
    """One pair of a map: a message of its key and its value."""
    return field(number, field(1, key.encode()) + field(2, value))


def _duration(text: str) -> bytes:
    """google.protobuf.Duration of `1.5s`: whole seconds, and the rest in nanoseconds."""
    seconds, rest = divmod(round(float(text.removesuffix("s")) * 1_000_000_000), 1_000_000_000)
    found = varint(1, seconds)
    return found + varint(2, rest) if rest else found

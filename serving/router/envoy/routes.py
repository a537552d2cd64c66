"""Virtual hosts and path routes of the public listener, and the private listener's routes.

By host, each service is a virtual host, which Envoy finds by hash. By path, all services are one tree of
prefixes (`prefix_match_map`): a linear list of routes costs every request a walk over half of the services.
"""

import hashlib
from typing import Any

from serving.resources import names
from serving.router.envoy import weights, wire
from serving.router.plan.service import Probe, Service, Sticky
from serving.settings import GatewaySettings

CALLER_HEADER = "x-slipway-caller"
"""The identity that the gateway assigns to a caller without one; set by the filter in `bootstrap` alone."""
ASSIGN_FILTER = "slipway.assign-caller"
"""Name of the filter that assigns it; off unless a route turns it on."""

_TYPE = "type.googleapis.com/"
_ROUTE = f"{_TYPE}envoy.config.route.v3.Route"

Json = dict[str, Any]


def virtual_host(service: Service, settings: GatewaySettings) -> Json:
    """Return the service's address by host."""
    host = service.host(settings.domain)
    return {"name": host, "domains": [host], "routes": [_route(service, "/", settings)]}


def path_route(service: Service, settings: GatewaySettings) -> Json:
    """Return the service's address by path, as the value of its prefix in the tree."""
    return _leaf(_route(service, service.prefix, settings))


def probe_route(probe: Probe) -> Json:
    """Return a backend's private address, as the value of its prefix in the tree."""
    return _leaf(
        {
            "match": {"prefix": probe.prefix},
            "route": {"cluster": probe.cluster, "prefix_rewrite": "/", "timeout": "0s"},
        }
    )


def tree_entry(prefix: str, leaf: Json) -> bytes:
    """Return an entry of the tree of paths, encoded."""
    return wire.encode("MatchMap", {"map": {prefix: leaf}})


def by_path(leaves: bytes, missing: str) -> Json:
    """Return the virtual host of everything that is addressed by path; `missing` is the 404's message."""
    not_found = _leaf({"match": {"prefix": "/"}, "direct_response": _direct(404, missing)})
    found: Json = {"on_no_match": not_found}
    if leaves:
        found["matcher_tree"] = {
            "input": {
                "name": "path",
                "typed_config": {
                    "@type": f"{_TYPE}envoy.type.matcher.v3.HttpRequestHeaderMatchInput",
                    "header_name": ":path",
                },
            },
            "prefix_match_map": leaves,
        }
    return {"name": "by-path", "domains": ["*"], "matcher": found}


def route_configuration(name: str, virtual_hosts: bytes) -> Json:
    """Return one RouteConfiguration resource."""
    return {
        "@type": f"{_TYPE}envoy.config.route.v3.RouteConfiguration",
        "name": name,
        # A client says `host:port`, the port being the listener's; the address is the host.
        "ignore_port_in_host_matching": True,
        "virtual_hosts": virtual_hosts,
        "request_headers_to_remove": [CALLER_HEADER],
    }


def _route(service: Service, prefix: str, settings: GatewaySettings) -> Json:
    route: Json = {"match": {"prefix": prefix}}
    if not service.ring:
        return route | {
            "direct_response": _direct(503, f"{service.namespace}/{service.name}: {service.unavailable}"),
            "response_headers_to_add": [_header("retry-after", str(settings.retry_after_seconds))],
        }
    action: Json = {
        "weighted_clusters": _weighted(service),
        # Envoy's default of 15 s kills generations; a stream without a byte is cut by the listener's idle timeout.
        "timeout": "0s",
        "retry_policy": _retry(settings, on_demand=any(cluster.on_demand for cluster in service.clusters)),
    }
    if prefix != "/":
        action["prefix_rewrite"] = "/"
    if service.sticky is not None and len(service.ring) > 1:
        action["hash_policy"] = [_hash(h, service.sticky) for h in (service.sticky.header, CALLER_HEADER)]
        route["metadata"] = {"filter_metadata": {ASSIGN_FILTER: {"header": service.sticky.header}}}
        route["typed_per_filter_config"] = {
            ASSIGN_FILTER: {
                "@type": f"{_TYPE}envoy.config.route.v3.FilterConfig",
                "config": {
                    "@type": f"{_TYPE}envoy.extensions.filters.http.lua.v3.LuaPerRoute",
                    "filter_context": {"header": service.sticky.header},
                },
            }
        }
    return route | {"route": action}


def _weighted(service: Service) -> Json:
    prefix = weights.key_prefix(service)
    entries = [
        {
            "name": piece.cluster,
            "weight": 1 if prefix else piece.weight,
            "response_headers_to_add": [
                _header(names.ARM_HEADER, piece.arm),
                *([_header(names.SERVED_VERSION_HEADER, piece.model_version)] if piece.model_version else []),
            ],
        }
        for piece in service.ring
    ]
    weighted: Json = {"clusters": entries}
    if prefix:
        weighted["runtime_key_prefix"] = prefix
    if service.sticky is not None and len(service.ring) > 1:
        weighted["use_hash_policy"] = True
    return weighted


def _hash(header: str, sticky: Sticky) -> Json:
    """Hash `salt:value`; the salt is hashed itself, so that no character of it means anything to RE2."""
    salt = hashlib.sha256(sticky.salt.encode()).hexdigest()[:16]
    return {
        "header": {
            "header_name": header,
            "regex_rewrite": {"pattern": {"regex": "^(.*)$"}, "substitution": f"{salt}:\\1"},
        },
        "terminal": True,
    }


def _retry(settings: GatewaySettings, *, on_demand: bool) -> Json:
    """Retry only what no replica has begun to work on, and on another replica.

    Of a service that may be at zero, the last attempt is the activator's: a replica may be gone of which Envoy has not
    been told yet, and the activator waits for the next.
    """
    last = {
        "retry_priority": {
            "name": "envoy.retry_priorities.previous_priorities",
            "typed_config": {
                "@type": f"{_TYPE}envoy.extensions.retry.priority.previous_priorities.v3.PreviousPrioritiesConfig",
                "update_frequency": settings.retries,
            },
        }
    }
    return (last if on_demand else {}) | {
        "retry_on": "connect-failure,refused-stream,reset-before-request",
        "num_retries": settings.retries,
        "retry_host_predicate": [
            {
                "name": "envoy.retry_host_predicates.previous_hosts",
                "typed_config": {
                    "@type": f"{_TYPE}envoy.extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate"
                },
            }
        ],
        "host_selection_retry_max_attempts": "5",
    }


def _direct(status: int, message: str) -> Json:
    """A local reply; the connection manager's `local_reply_config` makes it JSON."""
    return {"status": status, "body": {"inline_string": message}}


def _header(key: str, value: str) -> Json:
    """Add a header. To overwrite one that a replica sends costs 2 % of a small request, and replicas are ours."""
    return {"header": {"key": key, "value": value}}


def _leaf(route: Json) -> Json:
    return {"action": {"name": "route", "typed_config": {"@type": _ROUTE, **route}}}

"""Envoy's bootstrap: listeners, filters, and the source of all other configuration.

The bootstrap never changes while Envoy runs, as an update of a listener cuts streams that outlive its drain
time. Differences between services are in the routes.
"""

from collections.abc import Mapping

from serving import grpc_status
from serving.router.envoy import local_replies, module, token_filters, weights
from serving.router.envoy.counts import statistics
from serving.router.envoy.local_replies import Json
from serving.router.envoy.routes import ASSIGN_FILTER, BRIDGE_FILTER, CALLER_HEADER
from serving.settings import GatewaySettings

_TYPE = "type.googleapis.com/"
_FILTERS = f"{_TYPE}envoy.extensions.filters.http"
_CONNECTION_MANAGER_TYPE = f"{_TYPE}envoy.extensions.filters.network.http_connection_manager.v3"
_NOBODY = {"address_prefix": "::", "prefix_len": 128}
"""The unspecified address, which sends nothing; without a range, Envoy trusts private addresses as internal.
Of IPv6, so that Envoy compares it with no IPv4 client."""
COOKIE = "slipway-caller"
"""The cookie of a caller's identity, see `ASSIGN_CALLER`."""
_GATEWAY = "slipway-gateway"
"""The cluster of the gateway process, which serves xDS."""

_LEAST_IDLE_SECONDS = 5
"""Idle time of a stream near the limit of memory: models generate a token every second at least."""
_TRACKED_POWER = 16
"""Streams that buffer less than 64 KiB, two to this power, are not reset when memory is short."""
_WATCHDOG = {"miss_timeout": "10s", "megamiss_timeout": "20s"}
"""Envoy's watchdogs only count, and wake every thread at half of the shorter timeout, ten times a second by
default. The gateway itself asks the threads (`process/supervision.py`)."""
_REQUESTS_PER_TURN = 8
"""Requests that a worker takes from one HTTP/2 connection before it turns to the next. While 50 connections
opened 100 streams each at once, another client waited 0.03 s; without this limit, 0.5 s."""
_SOL_SOCKET, _SO_REUSEPORT, _SO_MARK = 1, 15, 36
"""Numbers of <asm-generic/socket.h>."""
_SHARED_PORT: Json = {
    "level": _SOL_SOCKET,
    "name": _SO_REUSEPORT,
    "int_value": 1,
    "state": "STATE_PREBIND",
}
"""Set before the socket is bound."""
_FROM_ADS: Json = {"ads": {}, "resource_api_version": "V3"}
"""The source of resources that come by the gateway's one xDS stream (ADS)."""

ASSIGN_CALLER = f"""
local entropy = io.open("/dev/urandom", "rb")

local function fresh()
  return (entropy:read(16):gsub(".", function(c) return string.format("%02x", string.byte(c)) end))
end

function envoy_on_request(handle)
  local headers = handle:headers()
  local wanted = handle:metadata():get("header")
  if wanted == nil or headers:get(wanted) ~= nil then return end
  local id = string.match("; " .. (headers:get("cookie") or ""), "; {COOKIE.replace("-", "%-")}=(%x+)")
  if id == nil or #id ~= 32 then
    id = fresh()
    handle:streamInfo():dynamicMetadata():set("{ASSIGN_FILTER}", "id", id)
  end
  headers:replace("{CALLER_HEADER}", id)
  handle:clearRouteCache()
end

function envoy_on_response(handle)
  local set = handle:streamInfo():dynamicMetadata():get("{ASSIGN_FILTER}")
  if set == nil then return end
  handle:headers():add("set-cookie",
    "{COOKIE}=" .. set["id"] .. "; Path=/; Max-Age=31536000; HttpOnly; SameSite=Lax")
  handle:headers():replace("{CALLER_HEADER}", set["id"])
end
"""
"""The Lua filter of sticky routes: gives a caller without the sticky header an identity.

The identity is 32 hex digits. The response that brings a new one has it in a cookie and in `CALLER_HEADER`.
`header` in the route's metadata is the name of the sticky header. Envoy chooses the route again, as the arm
depends on the identity.
"""


def bootstrap(
    settings: GatewaySettings, *, port: int, sockets: Mapping[str, str], mark: int | None = None
) -> Json:
    """Return the bootstrap.

    Args:
        settings: the gateway's.
        port: TCP port of the public listener.
        sockets: absolute paths by name: `admin`, `probe`, and `changes`, on which the gateway listens.
        mark: SO_MARK of the connections to replicas; None for none. Envoy must be allowed to set it: a
            connection whose mark cannot be set fails.
    """
    return {
        "node": {"id": "slipway", "cluster": "slipway"},
        "admin": {"address": {"pipe": {"path": sockets["admin"], "mode": 0o600}}},
        # Only the admin socket serves statistics; by default Envoy walks all of them every five seconds.
        "stats_flush_on_admin": True,
        **statistics.bootstrap(),
        "watchdogs": dict.fromkeys(("main_thread_watchdog", "worker_watchdog"), _WATCHDOG),
        "overload_manager": _overload_manager(settings),
        **({} if mark is None else {"cluster_manager": _mark_connections(mark)}),
        "dynamic_resources": {"ads_config": _ads_stream(), "cds_config": _FROM_ADS},
        "layered_runtime": {
            "layers": [
                {"name": "static", "static_layer": {"http.max_requests_per_io_cycle": _REQUESTS_PER_TURN}},
                *(
                    {"name": name, "rtds_layer": {"name": name, "rtds_config": _FROM_ADS}}
                    for name in weights.LAYERS
                ),
            ]
        },
        "static_resources": {
            "clusters": [_gateway_cluster(sockets["changes"])],
            "listeners": [_public_listener(settings, port), _private_listener(settings, sockets["probe"])],
        },
    }


def _mark_connections(mark: int) -> Json:
    """Return the options that set SO_MARK on all connections to replicas; Unix sockets ignore it."""
    # Before connect(2), as the first packet must have the mark.
    option = {"level": _SOL_SOCKET, "name": _SO_MARK, "int_value": mark, "state": "STATE_PREBIND"}
    return {"upstream_bind_config": {"socket_options": [option]}}


def _overload_manager(settings: GatewaySettings) -> Json:
    """Return the limits of clients' connections and of memory, for all services together."""
    monitors = "envoy.resource_monitors"
    kind = f"{_TYPE}envoy.extensions.resource_monitors"
    heap = f"{monitors}.fixed_heap"
    return {
        "refresh_interval": "0.25s",
        "resource_monitors": [
            {
                "name": f"{monitors}.global_downstream_max_connections",
                "typed_config": {
                    "@type": f"{kind}.downstream_connections.v3.DownstreamConnectionsConfig",
                    "max_active_downstream_connections": settings.connections,
                },
            },
            {
                "name": heap,
                "typed_config": {
                    "@type": f"{kind}.fixed_heap.v3.FixedHeapConfig",
                    "max_heap_size_bytes": settings.heap_bytes,
                },
            },
        ],
        # Thresholds are shares of the heap: idle streams end first, then those that buffer most; new requests
        # are refused last.
        "actions": [
            {
                "name": "envoy.overload_actions.shrink_heap",
                "triggers": [{"name": heap, "threshold": {"value": 0.8}}],
            },
            {
                "name": "envoy.overload_actions.reset_high_memory_stream",
                "triggers": [
                    {"name": heap, "scaled": {"scaling_threshold": 0.85, "saturation_threshold": 0.95}}
                ],
            },
            {
                # Envoy resets streams by their memory over HTTP/2 only: this ends idle ones over HTTP/1.1 as
                # well.
                "name": "envoy.overload_actions.reduce_timeouts",
                "triggers": [
                    {"name": heap, "scaled": {"scaling_threshold": 0.7, "saturation_threshold": 0.9}}
                ],
                "typed_config": {
                    "@type": f"{_TYPE}envoy.config.overload.v3.ScaleTimersOverloadActionConfig",
                    "timer_scale_factors": [
                        {"timer": "HTTP_DOWNSTREAM_STREAM_IDLE", "min_timeout": f"{_LEAST_IDLE_SECONDS}s"},
                        {
                            "timer": "HTTP_DOWNSTREAM_CONNECTION_IDLE",
                            "min_timeout": f"{_LEAST_IDLE_SECONDS}s",
                        },
                    ],
                },
            },
            {
                "name": "envoy.overload_actions.stop_accepting_requests",
                "triggers": [{"name": heap, "threshold": {"value": 0.95}}],
            },
        ],
        # Envoy accounts for the memory of each stream that buffers this much or more.
        "buffer_factory_config": {"minimum_account_to_track_power_of_two": _TRACKED_POWER},
    }


def _public_listener(settings: GatewaySettings, port: int) -> Json:
    assign_caller = {
        "name": ASSIGN_FILTER,
        "disabled": True,
        "typed_config": {
            "@type": f"{_FILTERS}.lua.v3.Lua",
            "default_source_code": {"inline_string": ASSIGN_CALLER},
        },
    }
    filters = token_filters.filters(assign_caller, settings)
    listener = {
        "name": "public",
        "address": {"socket_address": {"address": settings.host, "port_value": port}},
        "per_connection_buffer_limit_bytes": settings.connection_buffer_bytes,
        # One socket for all workers. It shares its port with the socket of `up` that reserves it.
        "enable_reuse_port": False,
        "socket_options": [_SHARED_PORT],
        # The bridge costs 7 % of a small request, so connections of HTTP/1.1, which cannot be gRPC's, have
        # none.
        "listener_filters": [_http_inspector()],
        "continue_on_listener_filters_timeout": True,
        "filter_chains": [
            {"name": "http1", "filters": [_connection_manager("public", settings, filters)]},
            {
                "name": "http2",
                "filter_chain_match": {"application_protocols": ["h2c"]},
                "filters": [
                    _connection_manager("public", settings, [*filters, grpc_bridge()], grpc=True),
                ],
            },
        ],
    }
    if settings.concurrency > 1:
        listener["connection_balance_config"] = {"exact_balance": {}}
    return listener


def _http_inspector() -> Json:
    """Return the listener filter that distinguishes HTTP/1.1 and HTTP/2 by a connection's first bytes."""
    kind = "envoy.extensions.filters.listener.http_inspector.v3.HttpInspector"
    return {"name": "http-inspector", "typed_config": {"@type": _TYPE + kind}}


def _private_listener(settings: GatewaySettings, socket: str) -> Json:
    """Return the listener of the gateway's probes, on a Unix socket that clients cannot open."""
    return {
        "name": "private",
        "address": {"pipe": {"path": socket, "mode": 0o600}},
        # Probes are answered even while clients have all the connections that they may have.
        "ignore_global_conn_limit": True,
        "filter_chains": [{"filters": [_connection_manager("private", settings, [])]}],
    }


def _connection_manager(
    name: str, settings: GatewaySettings, filters: list[Json], *, grpc: bool = False
) -> Json:
    """Return the network filter that handles the HTTP requests of a listener's connections.

    Args:
        name: of the listener, of its statistics and of its route configuration.
        settings: the gateway's.
        filters: before the router.
        grpc: whether requests may be gRPC's.
    """
    return {
        "name": "envoy.filters.network.http_connection_manager",
        "typed_config": {
            "@type": f"{_CONNECTION_MANAGER_TYPE}.HttpConnectionManager",
            "stat_prefix": name,
            "codec_type": "AUTO",
            "rds": {"route_config_name": name, "config_source": _FROM_ADS},
            "http2_protocol_options": {"max_concurrent_streams": settings.connection_streams},
            "use_remote_address": True,
            # No client is internal, so Envoy removes its own x-envoy-* headers from every request.
            "internal_address_config": {"cidr_ranges": [_NOBODY]},
            # A client's id goes to the replica and comes back; generating one costs 2 % of a small request.
            "generate_request_id": False,
            "preserve_external_request_id": True,
            "always_set_request_id_in_response": True,
            # Routes are prefixes: `/a/b/../../c/d` must not reach a service by the prefix of another.
            "normalize_path": True,
            "merge_slashes": True,
            # The route's idle timeout replaces this one when a request has a route, so this one limits
            # incomplete headers. Envoy's own limit for headers costs 1 % of a small request; this one, 0.1 %.
            "stream_idle_timeout": f"{settings.header_seconds}s",
            # A client that sends a byte now and then is never idle: this limits the whole request.
            "request_timeout": f"{settings.request_seconds}s",
            # A connection's idle time begins at the end of its last stream, when a slow client may still read
            # the answer out of the kernel's buffer: so it is as long as a stream's.
            "common_http_protocol_options": {"idle_timeout": f"{settings.stream_idle_seconds}s"},
            "http_filters": [
                *filters,
                {
                    "name": "envoy.filters.http.router",
                    "typed_config": {
                        "@type": f"{_FILTERS}.router.v3.Router",
                        "suppress_envoy_headers": True,
                        # Envoy would look up eight statistics for each answer; the module counts answers.
                        "dynamic_stats": False,
                    },
                },
            ],
            "local_reply_config": local_replies.config(settings),
            "access_log": [_answer_counter(grpc=grpc)],
        },
    }


def _answer_counter(*, grpc: bool) -> Json:
    """Return the access logger that counts answers by status; with `grpc` it reads gRPC's own status."""
    kind = "envoy.extensions.access_loggers.dynamic_modules.v3.DynamicModuleAccessLog"
    return {
        "name": "answers",
        "typed_config": {
            "@type": _TYPE + kind,
            "dynamic_module_config": module.config(),
            "logger_name": "slipway.answers.grpc" if grpc else "slipway.answers",
        },
    }


def grpc_bridge() -> Json:
    """Return the filter that sends a gRPC request by HTTP/1.1, and adds the trailers of gRPC to the response.

    It passes the frames of messages on (`withhold_grpc_frames` is off). If it added frames itself, a response
    without a body, as every local reply is, would get an empty message and the status OK.
    """
    return {
        "name": BRIDGE_FILTER,
        "typed_config": {
            "@type": f"{_FILTERS}.grpc_http1_reverse_bridge.v3.FilterConfig",
            "content_type": grpc_status.CONTENT_TYPE,
        },
    }


def _ads_stream() -> Json:
    """Return the xDS stream from the gateway to Envoy."""
    return {
        "api_type": "DELTA_GRPC",
        "transport_api_version": "V3",
        "set_node_on_first_message_only": True,
        "grpc_services": [
            {
                "envoy_grpc": {
                    "cluster_name": _GATEWAY,
                    # Envoy's own back-off grows to 30 s; a killed gateway is back within one.
                    "retry_policy": {"retry_back_off": {"base_interval": "0.05s", "max_interval": "0.5s"}},
                }
            }
        ],
    }


def _gateway_cluster(socket: str) -> Json:
    options = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
    return {
        "name": _GATEWAY,
        "type": "STATIC",
        "connect_timeout": "1s",
        "typed_extension_protocol_options": {
            options: {"@type": _TYPE + options, "explicit_http_config": {"http2_protocol_options": {}}}
        },
        "load_assignment": {
            "cluster_name": _GATEWAY,
            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": {"pipe": {"path": socket}}}}]}],
        },
    }

"""What Envoy is started with: listeners, filters and the paths of the files that change.

Nothing in it may change while Envoy runs: a listener update cuts streams that outlive its drain time. What
differs between services is in the routes.
"""

from collections.abc import Mapping
from typing import Any

from serving.router.envoy import weights
from serving.router.envoy.routes import ASSIGN_FILTER, CALLER_HEADER
from serving.settings import GatewaySettings

_TYPE = "type.googleapis.com/"
_FILTERS = f"{_TYPE}envoy.extensions.filters.http"
_NOBODY = {"address_prefix": "255.255.255.255", "prefix_len": 32}
"""The broadcast address, from which nothing comes; without a range, Envoy takes private addresses for internal."""
COOKIE = "slipway-caller"

Json = dict[str, Any]

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
"""Gives a caller without the sticky header an identity, in a cookie and in a response header."""


def bootstrap(settings: GatewaySettings, *, port: int, files: Mapping[str, str]) -> Json:
    """Return the bootstrap.

    Args:
        settings: the gateway's.
        port: TCP port of the public listener.
        files: absolute paths by name: `clusters`, `weights`, `public`, `private` (watched), `admin`, `probe` (sockets).
    """
    return {
        "node": {"id": "slipway", "cluster": "slipway"},
        "admin": {"address": {"pipe": {"path": files["admin"], "mode": 0o600}}},
        "dynamic_resources": {"cds_config": _watched(files["clusters"])},
        "layered_runtime": {
            "layers": [
                {
                    "name": weights.LAYER,
                    "rtds_layer": {"name": weights.LAYER, "rtds_config": _watched(files["weights"])},
                }
            ]
        },
        "static_resources": {"listeners": [_public(settings, port, files), _private(settings, files)]},
    }


def _public(settings: GatewaySettings, port: int, files: Mapping[str, str]) -> Json:
    filters = [
        {
            "name": ASSIGN_FILTER,
            "disabled": True,
            "typed_config": {
                "@type": f"{_FILTERS}.lua.v3.Lua",
                "default_source_code": {"inline_string": ASSIGN_CALLER},
            },
        }
    ]
    listener = {
        "name": "public",
        "address": {"socket_address": {"address": settings.host, "port_value": port}},
        # With it a second gateway of the same user would silently share the port.
        "enable_reuse_port": False,
        "filter_chains": [{"filters": [_http("public", settings, files["public"], filters)]}],
    }
    if settings.concurrency > 1:
        listener["connection_balance_config"] = {"exact_balance": {}}
    return listener


def _private(settings: GatewaySettings, files: Mapping[str, str]) -> Json:
    return {
        "name": "private",
        "address": {"pipe": {"path": files["probe"], "mode": 0o600}},
        "filter_chains": [{"filters": [_http("private", settings, files["private"], [])]}],
    }


def _http(name: str, settings: GatewaySettings, routes: str, filters: list[Json]) -> Json:
    return {
        "name": "envoy.filters.network.http_connection_manager",
        "typed_config": {
            "@type": f"{_TYPE}envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
            "stat_prefix": name,
            "codec_type": "AUTO",
            "rds": {"route_config_name": name, "config_source": _watched(routes)},
            # Before routing, so that no client chooses its arm, a host, an identity or our timeouts.
            "early_header_mutation_extensions": [
                {
                    "name": "strip",
                    "typed_config": {
                        "@type": f"{_TYPE}envoy.extensions.http.early_header_mutation.header_mutation.v3.HeaderMutation",
                        # A prefix costs a walk over all headers, 4 % of what a small request costs.
                        "mutations": [
                            {"remove_on_match": {"key_matcher": {"prefix": "x-slipway-"}}},
                            {"remove": "x-gateway-destination-endpoint"},
                            {"remove": "x-envoy-original-dst-host"},
                        ],
                    },
                }
            ],
            "use_remote_address": True,
            # Nobody is internal, so Envoy itself takes x-envoy-* headers that mean something to it from everyone.
            "internal_address_config": {"cidr_ranges": [_NOBODY]},
            "preserve_external_request_id": True,
            "always_set_request_id_in_response": True,
            # Routes are prefixes: `/a/b/../../c/d` must not be one service by its route and another's path.
            "normalize_path": True,
            "merge_slashes": True,
            "stream_idle_timeout": f"{settings.stream_idle_seconds}s",
            "request_headers_timeout": f"{settings.request_headers_seconds}s",
            "http_filters": [
                *filters,
                {
                    "name": "envoy.filters.http.router",
                    "typed_config": {
                        "@type": f"{_FILTERS}.router.v3.Router",
                        "suppress_envoy_headers": True,
                    },
                },
            ],
            "local_reply_config": {
                "body_format": {
                    "json_format": {"error": "%LOCAL_REPLY_BODY%"},
                    "content_type": "application/json",
                }
            },
        },
    }


def _watched(path: str) -> Json:
    return {"resource_api_version": "V3", "path_config_source": {"path": path}}

"""Rules between two settings, which no type of one setting can express. Pure."""

import re
from typing import NamedTuple

from serving.settings import Settings


class BrokenRule(NamedTuple):
    """A rule between settings that the configuration breaks."""

    path: str
    message: str


def broken_rules(settings: Settings) -> list[BrokenRule]:
    """Return the rules between settings that these settings break."""
    api, node, gateway, activator = settings.api, settings.node, settings.gateway, settings.activator
    runtimes, controllers, registry = settings.runtimes, settings.controllers, settings.registry
    stopping = runtimes.linger_seconds + runtimes.idle_seconds + runtimes.grace_seconds
    checks = [
        _below("api.renew_before_days", api.renew_before_days, "api.certificate_days", api.certificate_days),
        _below(
            "gateway.lease_renew_seconds",
            gateway.lease_renew_seconds,
            "gateway.lease_seconds",
            gateway.lease_seconds,
        ),
        _below(
            "activator.deadline_seconds",
            activator.deadline_seconds,
            "gateway.stream_idle_seconds",
            gateway.stream_idle_seconds,
        ),
        _at_most("activator.held_per_backend", activator.held_per_backend, "activator.held", activator.held),
        _at_most(
            "activator.bytes_per_backend", activator.bytes_per_backend, "activator.bytes", activator.bytes
        ),
        _at_most(
            "activator.body_bytes",
            activator.body_bytes,
            "activator.bytes_per_backend",
            activator.bytes_per_backend,
        ),
        _at_most(
            "node.backoff_base_seconds",
            node.backoff_base_seconds,
            "node.backoff_cap_seconds",
            node.backoff_cap_seconds,
        ),
        _at_most(
            "controllers.backoff_base_seconds",
            controllers.backoff_base_seconds,
            "controllers.backoff_cap_seconds",
            controllers.backoff_cap_seconds,
        ),
        _at_most(
            "controllers.build_backoff_base_seconds",
            controllers.build_backoff_base_seconds,
            "controllers.build_backoff_cap_seconds",
            controllers.build_backoff_cap_seconds,
        ),
        _at_most(
            "registry.backoff_base_seconds",
            registry.backoff_base_seconds,
            "registry.backoff_cap_seconds",
            registry.backoff_cap_seconds,
        ),
        _at_most("registry.piece_bytes", registry.piece_bytes, "registry.chunk_bytes", registry.chunk_bytes),
        _at_most(
            "supervisor.restart_seconds",
            settings.supervisor.restart_seconds,
            "supervisor.restart_cap_seconds",
            settings.supervisor.restart_cap_seconds,
        ),
        _at_most(
            "gateway.drain_seconds",
            gateway.drain_seconds,
            "supervisor.stop_seconds",
            settings.supervisor.stop_seconds,
        ),
        _below(
            "runtimes.linger_seconds + idle_seconds + grace_seconds",
            stopping,
            "node.grace_seconds",
            node.grace_seconds,
        ),
        _pod_network(node.pod_network),
        _url("controllers.prometheus", controllers.prometheus),
    ]
    return [broken for broken in checks if broken is not None]


def _below(path: str, value: float, limit_path: str, limit: float) -> BrokenRule | None:
    return (
        None if value < limit else BrokenRule(path, f"must be below {limit_path} ({limit:g}), not {value:g}")
    )


def _at_most(path: str, value: float, limit_path: str, limit: float) -> BrokenRule | None:
    return (
        None
        if value <= limit
        else BrokenRule(path, f"must be at most {limit_path} ({limit:g}), not {value:g}")
    )


def _pod_network(network: str) -> BrokenRule | None:
    if re.fullmatch(r"127\.([1-9]|[1-9][0-9]|1[0-9][0-9]|2[0-4][0-9]|25[0-5])", network):
        return None
    return BrokenRule(
        "node.pod_network", f"must be 127.N with N from 1 to 255, as Pods listen on loopback, not {network!r}"
    )


def _url(path: str, url: str) -> BrokenRule | None:
    if not url or url.startswith(("http://", "https://")):
        return None
    return BrokenRule(path, f"must be a URL such as http://prometheus.example:9090, or empty, not {url!r}")

"""Rules that the types of settings cannot express: relations of two settings, and syntax of texts. Pure."""

import ipaddress
import re
from collections.abc import Sequence
from operator import attrgetter
from posixpath import normpath
from typing import NamedTuple

from serving.planning.models import capture, volume
from serving.resources.names import SUBDOMAIN_PATTERN
from serving.settings import ModelPolicySettings, RuntimeImageSettings, Settings
from serving.system.network import addresses

_BELOW = (
    ("api.renew_before_days", "api.certificate_days"),
    ("gateway.lease_renew_seconds", "gateway.lease_seconds"),
    ("activator.deadline_seconds", "gateway.stream_idle_seconds"),
)
"""Pairs of setting and limit: the setting must be below the limit."""
_AT_MOST = (
    ("activator.held_per_backend", "activator.held"),
    ("activator.bytes_per_backend", "activator.bytes"),
    ("activator.body_bytes", "activator.bytes_per_backend"),
    ("node.backoff_base_seconds", "node.backoff_cap_seconds"),
    ("controllers.backoff_base_seconds", "controllers.backoff_cap_seconds"),
    ("controllers.build_backoff_base_seconds", "controllers.build_backoff_cap_seconds"),
    ("registry.backoff_base_seconds", "registry.backoff_cap_seconds"),
    ("registry.piece_bytes", "registry.chunk_bytes"),
    ("supervisor.restart_seconds", "supervisor.restart_cap_seconds"),
    ("gateway.drain_seconds", "supervisor.stop_seconds"),
)
"""Pairs of setting and limit: the setting must be at most the limit."""
_LABEL_LENGTH = 63
"""Longest DNS label (RFC 1123), in characters."""


class BrokenRule(NamedTuple):
    """A rule that the configuration breaks."""

    path: str
    """Of the setting, such as `gateway.port`, or a sum of settings."""
    message: str
    """The rule, and the value that breaks it."""


def broken_rules(settings: Settings) -> list[BrokenRule]:
    """Return the rules of this module that `settings` break."""
    value = {path: attrgetter(path)(settings) for rule in (*_BELOW, *_AT_MOST) for path in rule}
    runtimes, node = settings.runtimes, settings.node
    checks = [
        *(_below(path, value[path], limit, value[limit]) for path, limit in _BELOW),
        *(_at_most(path, value[path], limit, value[limit]) for path, limit in _AT_MOST),
        _below(
            "runtimes.linger_seconds + idle_seconds + grace_seconds",
            runtimes.linger_seconds + runtimes.idle_seconds + runtimes.grace_seconds,
            "node.grace_seconds",
            node.grace_seconds,
        ),
        _signed(settings.models.policy),
        _pod_network(node.pod_network),
        _host_path_roots(node.host_path_roots),
        _gateway_name(settings.gateway.name),
        _gateway_address(settings.gateway.address),
        *_runtime_images(settings.runtime_images),
        _one_of("models.volume", settings.models.volume, volume.CHOICES),
        _one_of("models.capture", settings.models.capture, capture.CHOICES),
        _pages_host(settings.pages.host),
        _url("controllers.prometheus", settings.controllers.prometheus),
    ]
    return [broken for broken in checks if broken is not None]


def _below(path: str, value: float, limit_path: str, limit: float) -> BrokenRule | None:
    if value < limit:
        return None
    return BrokenRule(path, f"must be below {limit_path} ({_digits(limit)}), not {_digits(value)}")


def _at_most(path: str, value: float, limit_path: str, limit: float) -> BrokenRule | None:
    if value <= limit:
        return None
    return BrokenRule(path, f"must be at most {limit_path} ({_digits(limit)}), not {_digits(value)}")


def _digits(value: float) -> str:
    return f"{value:.15g}"  # all digits of a number of bytes, and none after the point of a whole number


def _signed(policy: ModelPolicySettings) -> BrokenRule | None:
    has_keys = any(path.strip() for path in policy.keys.split(","))
    if has_keys or not policy.signed:
        return None
    return BrokenRule("models.policy.signed", "must be false where models.policy.keys names no key, not true")


def _one_of(path: str, value: str, choices: Sequence[str]) -> BrokenRule | None:
    if value in choices:
        return None
    return BrokenRule(path, f"must be one of {', '.join(choices)}, not {value!r}")


def _pod_network(network: str) -> BrokenRule | None:
    if re.fullmatch(r"127\.([1-9]|[1-9][0-9]|1[0-9][0-9]|2[0-4][0-9]|25[0-5])", network):
        return None
    return BrokenRule(
        "node.pod_network", f"must be 127.N with N from 1 to 255, as Pods listen on loopback, not {network!r}"
    )


def _host_path_roots(text: str) -> BrokenRule | None:
    roots = [part.strip() for part in text.split(",")] if text.strip() else []
    for root in roots:
        if not root.startswith("/") or normpath(root) != root:
            message = f"must be absolute paths such as /srv, separated by commas, not {root!r}"
            return BrokenRule("node.host_path_roots", message)
    return None


def _gateway_name(name: str) -> BrokenRule | None:
    if len(name) <= _LABEL_LENGTH and re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", name):
        return None
    rule = f"must be a DNS label of at most {_LABEL_LENGTH} characters such as gateway-1"
    return BrokenRule("gateway.name", f"{rule}, not {name!r}")


def _gateway_address(address: str) -> BrokenRule | None:
    if not address or re.fullmatch(r"([-.0-9A-Za-z]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?", address):
        return None
    rule = "must be a host, perhaps with a port, such as models.example.com:8080, or empty"
    return BrokenRule("gateway.address", f"{rule}, not {address!r}")


_REPOSITORY = r"[a-z0-9]([-.a-z0-9]*[a-z0-9])?(:[0-9]{1,5})?(/[a-z0-9]+((\.|_{1,2}|-+)[a-z0-9]+)*)*"
_TAG = r"[A-Za-z0-9_][-.A-Za-z0-9_]{0,127}"
_TEXTS = (
    (
        "prefix",
        _REPOSITORY,
        "a repository in lower case, without a tag, such as registry.example.com/slipway",
    ),
    ("tag", rf"({_TAG})?", "a tag such as 1.2.0, or empty"),
    (
        "waiter",
        rf"{_REPOSITORY}(:{_TAG})?(@sha256:[0-9a-f]{{64}})?",
        "an image such as registry.example.com/pause:3.10",
    ),
    ("copier", r"[a-z0-9]+((\.|_{1,2}|-+)[a-z0-9]+)*", "the name of an image, such as transfer"),
    ("pull_policy", r"(Always|IfNotPresent|Never)?", "Always, IfNotPresent, Never, or empty"),
    ("pull_secret", rf"({SUBDOMAIN_PATTERN})?", "the name of a Secret, or empty"),
)
"""Texts of `runtime_images`: the setting, its pattern and the rule."""


def _runtime_images(images: RuntimeImageSettings) -> list[BrokenRule]:
    return [
        BrokenRule(f"runtime_images.{name}", f"must be {rule}, not {getattr(images, name)!r}")
        for name, pattern, rule in _TEXTS
        if not re.fullmatch(pattern, getattr(images, name))
    ]


def _pages_host(host: str) -> BrokenRule | None:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return BrokenRule("pages.host", f"must be an address such as 0.0.0.0, not {host!r}")
    return None


def _url(path: str, url: str) -> BrokenRule | None:
    if not url or url.startswith(("http://", "https://")):
        return None
    shown = addresses.without_credentials(url)
    return BrokenRule(path, f"must be a URL such as http://prometheus.example:9090, or empty, not {shown!r}")

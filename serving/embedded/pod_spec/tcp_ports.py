"""The TCP ports of a Pod, and which of them only the gateway may connect to. Pure."""

from collections.abc import Iterable, Mapping
from typing import Any

from serving.embedded.pod_spec.pod_identity import PodIdentity
from serving.objects import Object
from serving.resources import names


def of_container(container: Object, identity: PodIdentity) -> list[int]:
    """Return the containerPorts at which this container listens by TCP, in ascending order."""
    ports = container.get("ports") or []
    tcp = {port["containerPort"] for port in ports if (port.get("protocol") or "TCP") == "TCP"}
    return sorted(tcp - {identity.socket_port})


def of_containers(containers: Iterable[Object], identity: PodIdentity) -> list[int]:
    """Return the containerPorts at which these containers listen by TCP, in ascending order."""
    return sorted({port for container in containers for port in of_container(container, identity)})


def gateway_port(meta: Mapping[str, Any]) -> int | None:
    """Return the containerPort to which only the gateway and the node may connect, if a Pod has such a port:
    `names.GATEWAY_PORT_ANNOTATION`.
    """
    return _port(meta, names.GATEWAY_PORT_ANNOTATION)


def socket_port(meta: Mapping[str, Any]) -> int | None:
    """Return the containerPort whose requests come by a Unix socket, if a Pod has such a port:
    `names.SOCKET_PORT_ANNOTATION`.
    """
    return _port(meta, names.SOCKET_PORT_ANNOTATION)


def _port(meta: Mapping[str, Any], annotation: str) -> int | None:
    text = (meta.get("annotations") or {}).get(annotation, "")
    is_short = len(text) <= 5  # int() refuses a text of thousands of digits
    return int(text) if is_short and text.isdecimal() and 0 < int(text) < 65536 else None

"""Decides the EndpointSlices of a Service. Pure.

As in k8s.io/endpointslice/utils.go, a Pod with a deletionTimestamp is not ready, and still `serving` while
its probe succeeds. A slice has one set of ports, so Pods that resolve a named port to different numbers are
in different slices; the first is `<service>-local`. The addresses are the Pods' loopback addresses.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import orjson

from serving.embedded.pod_spec import tcp_ports
from serving.embedded.workloads import naming, pods
from serving.objects import Object, is_deleting
from serving.resources import kinds, names
from serving.resources.kubernetes import conditions, owner_references, pod_phases

MANAGED_BY_LABEL = "endpointslice.kubernetes.io/managed-by"
MANAGER = "slipway-node"
MAX_ENDPOINTS = 1000
"""Maximum endpoints of a slice, as in the API."""


def selector(service: Mapping[str, Any]) -> dict[str, str]:
    """Return the selector of a Service; empty if it selects nothing."""
    spec = service.get("spec") or {}
    if spec.get("type") == "ExternalName":
        return {}
    return dict(spec.get("selector") or {})


def slices(service: Object, pods_: Iterable[Object]) -> list[Object]:
    """Return the slices of a Service, in a stable order, for the Pods that it selects.

    A Service without endpoints has one empty slice; a Service without a selector has none.
    """
    if not selector(service):
        return []
    ports_by_key: dict[bytes, list[Object]] = {}
    endpoints_by_key: dict[bytes, list[Object]] = {}
    for pod in sorted(pods_, key=lambda p: p["metadata"]["name"]):
        endpoint = _endpoint(service, pod)
        if endpoint is not None:
            ports = _ports(service, pod)
            key = orjson.dumps(ports)
            ports_by_key[key] = ports
            endpoints_by_key.setdefault(key, []).append(endpoint)
    if not endpoints_by_key:
        return [_slice(service, 0, [], [])]
    slices_: list[Object] = []
    for key, endpoints in sorted(endpoints_by_key.items()):
        for start in range(0, len(endpoints), MAX_ENDPOINTS):
            chunk = endpoints[start : start + MAX_ENDPOINTS]
            slices_.append(_slice(service, len(slices_), ports_by_key[key], chunk))
    return slices_


def relevant(pod: Object | None) -> object:
    """Return the parts of a Pod on which slices depend."""
    if pod is None:
        return None
    status, meta = pod.get("status") or {}, pod["metadata"]
    ready = conditions.find(status.get("conditions"), "Ready")
    return (
        meta["uid"],
        meta.get("labels"),
        tcp_ports.socket_port(meta),
        is_deleting(pod),
        status.get("podIP"),
        pod_phases.has_ended(pod),
        ready is not None and ready.get("status") == "True",
    )


def _endpoint(service: Object, pod: Object) -> Object | None:
    status, meta, spec = pod.get("status") or {}, pod["metadata"], pod.get("spec") or {}
    if not status.get("podIP") or pods.is_standby(pod) or pod_phases.has_ended(pod):
        return None
    serving = conditions.is_true(pod, "Ready")
    terminating = is_deleting(pod)
    publish = bool(service["spec"].get("publishNotReadyAddresses"))
    endpoint: Object = {
        "addresses": [status["podIP"]],
        "conditions": {
            "ready": publish or (serving and not terminating),
            "serving": serving,
            "terminating": terminating,
        },
        "targetRef": {
            "kind": "Pod",
            "name": meta["name"],
            "namespace": meta["namespace"],
            "uid": meta["uid"],
        },
    }
    if spec.get("nodeName"):
        endpoint["nodeName"] = spec["nodeName"]
    if spec.get("hostname") and spec.get("subdomain") == service["metadata"]["name"]:
        endpoint["hostname"] = spec["hostname"]
    return endpoint


def _ports(service: Object, pod: Object) -> list[Object]:
    """Resolve the Service's ports on this Pod, without ports whose name no container has."""
    ports = []
    for port in service["spec"].get("ports") or []:
        protocol = port.get("protocol") or "TCP"
        number = _target(port.get("targetPort", port["port"]), port["port"], protocol, pod)
        if number is not None:
            entry = {"name": port.get("name") or "", "port": number, "protocol": protocol}
            if number == tcp_ports.socket_port(pod["metadata"]):
                entry["appProtocol"] = names.UNIX_PROTOCOL
            elif port.get("appProtocol"):
                entry["appProtocol"] = port["appProtocol"]
            ports.append(entry)
    return ports


def _target(target: int | str, fallback: int, protocol: str, pod: Object) -> int | None:
    """Resolve a targetPort on a Pod: a number, `fallback` for 0, or the name of a containerPort."""
    if isinstance(target, int):
        return target or fallback
    for container in pod["spec"].get("containers") or []:
        for port in container.get("ports") or []:
            if port.get("name") == target and (port.get("protocol") or "TCP") == protocol:
                return int(port["containerPort"])
    return None


def _slice(service: Object, number: int, ports: list[Object], endpoints: list[Object]) -> Object:
    meta = service["metadata"]
    suffix = "local" if number == 0 else f"local-{naming.digest(str(number).encode(), 5)}"
    return {
        "metadata": {
            "name": f"{meta['name']}-{suffix}",
            "namespace": meta["namespace"],
            # As k8s.io/endpointslice: the Service's labels are its slices' too, and select them.
            "labels": {
                **(meta.get("labels") or {}),
                names.SERVICE_NAME_LABEL: meta["name"],
                MANAGED_BY_LABEL: MANAGER,
            },
            "ownerReferences": [owner_references.controller_reference(kinds.SERVICE, service)],
        },
        "addressType": "IPv4",
        "endpoints": endpoints,
        "ports": ports,
    }


def same(desired: Object, stored: Object | None) -> bool:
    """Whether a stored slice equals the desired one."""
    if stored is None:
        return False
    old, new = stored["metadata"], desired["metadata"]
    return (
        all(stored.get(part) == desired[part] for part in ("addressType", "endpoints", "ports"))
        and (old.get("labels") or {}) == new["labels"]
        and new["ownerReferences"][0]["uid"] in {o["uid"] for o in old.get("ownerReferences") or ()}
    )


def is_urgent(desired: Object, stored: Object | None) -> bool:
    """Whether the write must not wait: the slices differ in the serving Pods or their ports, the owner or the
    labels.
    """
    if _serving(desired) != _serving(stored or {}):
        return True
    if stored is None:
        return False
    with_stored_endpoints = {**desired, "endpoints": stored.get("endpoints"), "ports": stored.get("ports")}
    return not same(with_stored_endpoints, stored)


def _serving(slice_: Object) -> tuple[list[Object], list[Object]] | None:
    """Return (ports, endpoints that are ready or serving); None without such endpoints."""
    endpoints = []
    for endpoint in slice_.get("endpoints") or []:
        endpoint_conditions = endpoint.get("conditions") or {}
        if endpoint_conditions.get("ready") or endpoint_conditions.get("serving"):
            endpoints.append(endpoint)
    return (slice_.get("ports") or [], endpoints) if endpoints else None

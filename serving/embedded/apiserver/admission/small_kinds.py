"""Defaults and rules of the smaller kinds, as in k8s.io/kubernetes/pkg/apis/*/{defaults,validation}.go."""

import base64
import ipaddress
import re
from collections.abc import Iterator

from serving.embedded.apiserver import status_errors
from serving.embedded.apiserver.admission import pod
from serving.errors import Cause
from serving.objects import Object

_DATA_KEY = re.compile(r"[-._a-zA-Z0-9]+")
_DATA_KEY_RULE = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or "
    "'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
)
NAME_LABEL = "kubernetes.io/metadata.name"
"""Label of every namespace, for selectors."""
MAX_DATA = 1024 * 1024
"""Maximum bytes of a Secret or ConfigMap, as in Kubernetes."""
IMMUTABLE = "field is immutable when `immutable` is set"
_UNSUPPORTED_SERVICE_FIELDS = (
    "allocateLoadBalancerNodePorts",
    "externalIPs",
    "externalName",
    "externalTrafficPolicy",
    "healthCheckNodePort",
    "loadBalancerClass",
    "loadBalancerIP",
    "loadBalancerSourceRanges",
    "sessionAffinityConfig",
    "trafficDistribution",
)
_FIXED_SERVICE_VALUES = {
    "sessionAffinity": "None",
    "internalTrafficPolicy": "Cluster",
    "ipFamilies": ["IPv4"],
    "ipFamilyPolicy": "SingleStack",
}
ALWAYS_HEADLESS = "None"
"""clusterIP of every Service: on one machine there are no virtual addresses."""


def namespace_defaults(obj: Object) -> None:
    if obj["metadata"].get("name"):
        obj["metadata"].setdefault("labels", {})[NAME_LABEL] = obj["metadata"]["name"]
    obj.setdefault("spec", {}).setdefault("finalizers", ["kubernetes"])
    obj.setdefault("status", {}).setdefault("phase", "Active")


def event_defaults(obj: Object) -> None:
    obj.setdefault("type", "Normal")


def event_check(obj: Object, _old: Object | None) -> Iterator[Cause]:
    involved = obj.get("involvedObject", {}).get("namespace") or "default"
    if involved != obj["metadata"].get("namespace"):
        yield status_errors.invalid("involvedObject.namespace", involved, "does not match event.namespace")
    if obj["type"] not in ("Normal", "Warning"):
        yield status_errors.unsupported("type", obj["type"], ("Normal", "Warning"))


def service_defaults(obj: Object) -> None:
    spec = obj.setdefault("spec", {})
    spec.setdefault("type", "ClusterIP")
    spec.setdefault("sessionAffinity", "None")
    spec.setdefault("internalTrafficPolicy", "Cluster")
    if spec["type"] == "ClusterIP":
        spec.setdefault("clusterIP", ALWAYS_HEADLESS)
        spec.setdefault("clusterIPs", [spec["clusterIP"]])
        spec.setdefault("ipFamilies", ["IPv4"])
        spec.setdefault("ipFamilyPolicy", "SingleStack")
    for port in spec.get("ports") or ():
        port.setdefault("protocol", "TCP")
        port.setdefault("targetPort", port.get("port"))


def service_check(obj: Object, old: Object | None) -> Iterator[Cause]:
    spec = obj["spec"]
    if spec["type"] != "ClusterIP":
        rule = "only ClusterIP is supported on one machine: the gateway is the way in"
        yield status_errors.invalid("spec.type", spec["type"], rule)
    elif spec["clusterIP"] != ALWAYS_HEADLESS:
        rule = "only None is supported on one machine: there are no virtual addresses"
        yield status_errors.invalid("spec.clusterIP", spec["clusterIP"], rule)
    yield from _unsupported_service_fields(spec)
    if old is not None and old["spec"].get("clusterIP") != spec.get("clusterIP"):
        yield status_errors.invalid("spec.clusterIP", spec.get("clusterIP"), "field is immutable")
    yield from _service_ports(spec.get("ports") or [])


def _unsupported_service_fields(spec: Object) -> Iterator[Cause]:
    for name in _UNSUPPORTED_SERVICE_FIELDS:
        if name in spec:
            yield status_errors.invalid(f"spec.{name}", spec[name], "not supported on one machine")
    for name, value in _FIXED_SERVICE_VALUES.items():
        if spec.get(name, value) != value:
            yield status_errors.unsupported(f"spec.{name}", spec[name], (value,))


def _service_ports(ports: list[Object]) -> Iterator[Cause]:
    names: set[str] = set()
    for index, port in enumerate(ports):
        path = f"spec.ports[{index}]"
        if len(ports) > 1 and not port.get("name"):
            yield status_errors.required(f"{path}.name")
        if port.get("name") and port["name"] in names:
            yield status_errors.duplicate(f"{path}.name", port["name"])
        names.add(port.get("name", ""))
        yield from pod.port_number(port["port"], f"{path}.port")
        yield from pod.port_or_name(port["targetPort"], f"{path}.targetPort")
        if port["protocol"] not in pod.PROTOCOLS:
            yield status_errors.unsupported(f"{path}.protocol", port["protocol"], pod.PROTOCOLS)
        if port.get("nodePort"):
            yield status_errors.invalid(f"{path}.nodePort", port["nodePort"], "not supported on one machine")


def secret_defaults(obj: Object) -> None:
    obj.setdefault("type", "Opaque")
    texts = obj.pop("stringData", None)
    if texts:
        encoded = {key: base64.b64encode(str(text).encode()).decode() for key, text in texts.items()}
        obj["data"] = {**(obj.get("data") or {}), **encoded}


def secret_check(obj: Object, old: Object | None) -> Iterator[Cause]:
    data = obj.get("data") or {}
    yield from _data_keys(data, "data")
    if sum(len(value) * 3 // 4 for value in data.values()) > MAX_DATA:
        yield status_errors.too_long("data", MAX_DATA)
    if old is None:
        return
    if old.get("type") != obj["type"]:
        yield status_errors.invalid("type", obj["type"], "field is immutable")
    yield from _immutable(obj, old, ("data",))


def config_map_check(obj: Object, old: Object | None) -> Iterator[Cause]:
    data, binary = obj.get("data") or {}, obj.get("binaryData") or {}
    yield from _data_keys(data, "data")
    yield from _data_keys(binary, "binaryData")
    for key in sorted(data.keys() & binary.keys()):
        yield status_errors.invalid(f"data[{key}]", key, "duplicate of key present in binaryData")
    size = sum(len(text.encode()) for text in data.values()) + sum(
        len(text) * 3 // 4 for text in binary.values()
    )
    if size > MAX_DATA:
        yield status_errors.too_long("data", MAX_DATA)
    if old is not None:
        yield from _immutable(obj, old, ("data", "binaryData"))


def _data_keys(data: Object, path: str) -> Iterator[Cause]:
    for key in data:
        if not _DATA_KEY.fullmatch(key) or key in (".", ".."):
            yield status_errors.invalid(f"{path}[{key}]", key, _DATA_KEY_RULE)


def _immutable(obj: Object, old: Object, fields: tuple[str, ...]) -> Iterator[Cause]:
    if not old.get("immutable"):
        return
    if not obj.get("immutable"):
        yield status_errors.forbidden("immutable", IMMUTABLE)
    for field in fields:
        if (obj.get(field) or {}) != (old.get(field) or {}):
            yield status_errors.forbidden(field, IMMUTABLE)


def endpoint_slice_check(obj: Object, old: Object | None) -> Iterator[Cause]:
    """Yield the broken rules. Loopback addresses are allowed, unlike on a cluster: every Pod here has one."""
    types = ("IPv4", "IPv6", "FQDN")
    address_type = obj["addressType"]
    if address_type not in types:
        yield status_errors.unsupported("addressType", address_type, types)
    if old is not None and old["addressType"] != address_type:
        yield status_errors.invalid("addressType", address_type, "field is immutable")
    for index, endpoint in enumerate(obj.get("endpoints") or ()):
        addresses = endpoint.get("addresses") or []
        if not addresses:
            yield status_errors.required(f"endpoints[{index}].addresses", "must contain at least 1 address")
        for position, address in enumerate(addresses):
            if address_type in ("IPv4", "IPv6") and not _is_address(address, int(address_type[-1])):
                path = f"endpoints[{index}].addresses[{position}]"
                yield status_errors.invalid(path, address, f"must be a valid {address_type} address")


def _is_address(text: str, version: int) -> bool:
    try:
        return ipaddress.ip_address(text).version == version
    except ValueError:
        return False


def lease_check(obj: Object, _old: Object | None) -> Iterator[Cause]:
    spec = obj.get("spec") or {}
    if spec.get("leaseDurationSeconds", 1) <= 0:
        yield status_errors.invalid(
            "spec.leaseDurationSeconds", spec["leaseDurationSeconds"], "must be greater than 0"
        )
    if spec.get("leaseTransitions", 0) < 0:
        yield status_errors.invalid(
            "spec.leaseTransitions", spec["leaseTransitions"], "must be greater than or equal to 0"
        )

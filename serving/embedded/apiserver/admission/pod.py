"""Defaults and rules of Pods and Pod templates, as in k8s.io/kubernetes/pkg/apis/core/{v1,validation}.

Fields that one machine does not support are refused by their path (`unsupported`). Tolerations, topology
spread and priority are stored; they have no effect on one node.
"""

import re
from collections.abc import Iterator
from typing import Any

from serving.embedded.apiserver import object_meta, status_errors
from serving.embedded.apiserver.admission import unsupported
from serving.embedded.apiserver.schema import schemas
from serving.embedded.pod_spec import termination_fields
from serving.errors import Cause
from serving.objects import Object
from serving.resources.formats import quantity

PROTOCOLS = ("TCP", "UDP", "SCTP")
MOST_GRACE_SECONDS = 2**31 - 1
"""68 years, so that the end of the grace period is a date; Kubernetes allows any int64."""
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_HANDLERS = ("exec", "httpGet", "tcpSocket", "grpc")
_PORT_NAME = re.compile(r"(?=.*[a-z])[a-z0-9]+(-[a-z0-9]+)*")
_ENV_NAME = re.compile(r"[ -<>-~]+")
"""Printable ASCII characters except `=`."""
_FILE_MODE = 0o644
"""Default mode of files from Secrets and ConfigMaps."""


def defaults(obj: Object) -> None:
    spec = obj.setdefault("spec", {})
    spec_defaults(spec)
    for container in _containers(spec):
        _request_defaults(container["resources"])
    spec.setdefault("enableServiceLinks", True)
    obj.setdefault("status", {}).setdefault("phase", "Pending")


def spec_defaults(spec: Object) -> None:
    """Set the defaults that Pods and templates of Pods have in common, as kube-apiserver does."""
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("schedulerName", "default-scheduler")
    spec.setdefault("securityContext", {})
    if name := spec.get("serviceAccountName") or spec.get("serviceAccount"):
        spec |= {"serviceAccountName": name, "serviceAccount": name}
    for container in _containers(spec):
        _container_defaults(container)
    for volume in spec.get("volumes") or ():
        _volume_defaults(volume)


def _containers(spec: Object) -> tuple[Object, ...]:
    return (*(spec.get("initContainers") or ()), *(spec.get("containers") or ()))


def _request_defaults(resources: Object) -> None:
    """Set the requests of a Pod's container to its limits where it has none.

    A template gets none, as in kube-apiserver: they would remain when its limits are lowered.
    """
    if limits := resources.get("limits"):
        resources["requests"] = {**limits, **(resources.get("requests") or {})}


def _container_defaults(container: Object) -> None:
    # Only a colon behind the last slash begins a tag: one before it begins the registry's port.
    last_part = container.get("image", "").rsplit("/", 1)[-1]
    is_latest = "@" not in last_part and (":" not in last_part or last_part.endswith(":latest"))
    container.setdefault("imagePullPolicy", "Always" if is_latest else "IfNotPresent")
    container.setdefault("resources", {})
    for field, default in termination_fields.DEFAULTS.items():
        container.setdefault(field, default)
    for port in container.get("ports") or ():
        port.setdefault("protocol", "TCP")
    for variable in container.get("env") or ():
        reference = (variable.get("valueFrom") or {}).get("fieldRef")
        if reference:
            reference.setdefault("apiVersion", "v1")
    for name in _PROBES:
        if name in container:
            _probe_defaults(container[name])
    for hook in (container.get("lifecycle") or {}).values():
        if isinstance(hook, dict) and "httpGet" in hook:
            _http_defaults(hook["httpGet"])


def _probe_defaults(probe: Object) -> None:
    numbers = (("timeoutSeconds", 1), ("periodSeconds", 10), ("successThreshold", 1), ("failureThreshold", 3))
    for name, value in numbers:
        probe[name] = probe.get(name) or value  # Kubernetes takes a zero here for a missing number
    if "httpGet" in probe:
        _http_defaults(probe["httpGet"])
    if "grpc" in probe:
        probe["grpc"].setdefault("service", "")


def _http_defaults(request: Object) -> None:
    request.setdefault("path", "/")
    request.setdefault("scheme", "HTTP")


def _volume_defaults(volume: Object) -> None:
    if not volume.keys() - {"name"}:
        volume["emptyDir"] = {}
    for name in ("secret", "configMap"):
        if name in volume:
            volume[name].setdefault("defaultMode", _FILE_MODE)
    if "hostPath" in volume:
        volume["hostPath"].setdefault("type", "")
    if "image" in volume:
        volume["image"].setdefault("pullPolicy", "IfNotPresent")


def check(obj: Object, old: Object | None) -> Iterator[Cause]:
    if old is None:
        yield from _pod_check(obj, _namespace(obj), "spec", ("Always", "OnFailure", "Never"))
    else:
        yield from _changes(obj["spec"], old["spec"])


def _changes(new: Object, old: Object) -> Iterator[Cause]:
    """Yield an error unless only images, activeDeadlineSeconds, tolerations or a first nodeName change.

    An image must not be empty.
    """
    # The text of kube-apiserver, whose further conditions are not checked.
    rule = (
        "pod updates may not change fields other than `spec.containers[*].image`,"
        "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to "
        "existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was "
        "previously negative)"
    )
    if _immutable_part(new, old) != _immutable_part(old, old):
        yield status_errors.forbidden("spec", rule)
    for field in ("initContainers", "containers"):
        for index, container in enumerate(new.get(field) or ()):
            if not container.get("image"):
                yield status_errors.required(f"spec.{field}[{index}].image")


def _immutable_part(spec: Object, old: Object) -> Object:
    """Return the part of `spec` that an update must not change; `old` is the spec before the update."""
    immutable: Object = {
        key: schemas.clone(value)
        for key, value in spec.items()
        if key not in ("activeDeadlineSeconds", "tolerations")
        and not (key == "nodeName" and not old.get("nodeName"))
    }
    for container in (*immutable.get("containers", ()), *immutable.get("initContainers", ())):
        container.pop("image", None)
    return immutable


def template_check(owner: Object, path: str, restart_policies: tuple[str, ...]) -> Iterator[Cause]:
    """Yield the broken rules of the Pod template of an object.

    Args:
        owner: the object, with `spec.template`.
        path: of the template.
        restart_policies: those that the owner allows.
    """
    template = owner["spec"]["template"]
    yield from object_meta.labels(
        (template.get("metadata") or {}).get("labels") or {}, f"{path}.metadata.labels"
    )
    if "spec" not in template:
        yield status_errors.required(f"{path}.spec.containers")
        return
    yield from _pod_check(template, _namespace(owner), f"{path}.spec", restart_policies)


def _namespace(obj: Object) -> str:
    return str(obj["metadata"].get("namespace", ""))


def _pod_check(
    template: Object, namespace: str, path: str, restart_policies: tuple[str, ...]
) -> Iterator[Cause]:
    """Yield the broken rules of Kubernetes, then the unsupported fields that broke none of these rules."""
    causes = list(_spec_check(template["spec"], path, restart_policies))
    fields = {cause.field for cause in causes}
    yield from causes
    yield from (
        cause for cause in unsupported.pod_check(template, namespace, path) if cause.field not in fields
    )


def _spec_check(spec: Object, path: str, restart_policies: tuple[str, ...]) -> Iterator[Cause]:
    if spec["restartPolicy"] not in restart_policies:
        yield status_errors.unsupported(f"{path}.restartPolicy", spec["restartPolicy"], restart_policies)
    grace = spec["terminationGracePeriodSeconds"]
    if not 0 <= grace <= MOST_GRACE_SECONDS:
        rule = (
            "must be greater than or equal to 0"
            if grace < 0
            else f"must be less than or equal to {MOST_GRACE_SECONDS}"
        )
        yield status_errors.invalid(f"{path}.terminationGracePeriodSeconds", grace, rule)
    if not spec["containers"]:
        yield status_errors.required(f"{path}.containers")
    volumes = {volume.get("name", "") for volume in spec.get("volumes") or ()}
    for index, volume in enumerate(spec.get("volumes") or ()):
        yield from _volume(volume, f"{path}.volumes[{index}]")
    names: set[str] = set()
    for field in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(field) or ()):
            container_path = f"{path}.{field}[{index}]"
            if container["name"] in names:
                yield status_errors.duplicate(f"{container_path}.name", container["name"])
            names.add(container["name"])
            yield from _container(container, container_path, volumes)


def _volume(volume: Object, path: str) -> Iterator[Cause]:
    yield from _label(volume["name"], f"{path}.name")
    sources = [name for name in volume if name != "name"]
    for source in sources[1:]:
        yield status_errors.forbidden(f"{path}.{source}", "may not specify more than 1 volume type")
    if "hostPath" in volume and not volume["hostPath"]["path"].startswith("/"):
        yield status_errors.invalid(
            f"{path}.hostPath.path", volume["hostPath"]["path"], "must be an absolute path"
        )


def _label(name: str, path: str) -> Iterator[Cause]:
    if not re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", name):
        yield status_errors.invalid(path, name, object_meta.LABEL_RULE)


def _container(container: Object, path: str, volumes: set[str]) -> Iterator[Cause]:
    yield from _label(container["name"], f"{path}.name")
    if not container.get("image"):
        yield status_errors.required(f"{path}.image")
    policies = ("Always", "IfNotPresent", "Never")
    if container["imagePullPolicy"] not in policies:
        yield status_errors.unsupported(f"{path}.imagePullPolicy", container["imagePullPolicy"], policies)
    for index, port in enumerate(container.get("ports") or ()):
        yield from port_number(port["containerPort"], f"{path}.ports[{index}].containerPort")
        if port["protocol"] not in PROTOCOLS:
            yield status_errors.unsupported(f"{path}.ports[{index}].protocol", port["protocol"], PROTOCOLS)
    for index, variable in enumerate(container.get("env") or ()):
        yield from _variable(variable, f"{path}.env[{index}]")
    for index, mount in enumerate(container.get("volumeMounts") or ()):
        if mount["name"] not in volumes:
            name = f"{path}.volumeMounts[{index}].name"
            yield Cause(name, f"Not found: {status_errors.show(mount['name'])}", "FieldValueNotFound")
    yield from _resources(container["resources"], f"{path}.resources")
    for name in _PROBES:
        if name in container:
            needs_one_success = name != "readinessProbe"
            yield from _probe(container[name], f"{path}.{name}", needs_one_success=needs_one_success)


def _variable(variable: Object, path: str) -> Iterator[Cause]:
    if not _ENV_NAME.fullmatch(variable["name"]):
        rule = (
            "a valid environment variable name must consist only of printable ASCII characters other than '='"
        )
        yield status_errors.invalid(f"{path}.name", variable["name"], rule)
    if variable.get("value") and "valueFrom" in variable:
        yield status_errors.invalid(f"{path}.valueFrom", "", "may not be specified when `value` is not empty")


def _resources(resources: Object, path: str) -> Iterator[Cause]:
    limits = resources.get("limits") or {}
    for field in ("limits", "requests"):
        for name, value in (resources.get(field) or {}).items():
            if quantity.parse(value) < 0:
                yield status_errors.invalid(
                    f"{path}.{field}[{name}]", value, "must be greater than or equal to 0"
                )
    for name, value in (resources.get("requests") or {}).items():
        if name in limits and quantity.parse(value) > quantity.parse(limits[name]):
            rule = f"must be less than or equal to {name} limit of {limits[name]}"
            yield status_errors.invalid(f"{path}.requests", value, rule)


def _probe(probe: Object, path: str, *, needs_one_success: bool) -> Iterator[Cause]:
    """Yield the broken rules of a probe, whose successThreshold must be 1 if it `needs_one_success`."""
    handlers = [name for name in _HANDLERS if name in probe]
    if not handlers:
        yield status_errors.required(path, "must specify a handler type")
    for extra in handlers[1:]:
        yield status_errors.forbidden(f"{path}.{extra}", "may not specify more than 1 handler type")
    for name in ("httpGet", "tcpSocket"):
        if name in probe:
            yield from port_or_name(probe[name]["port"], f"{path}.{name}.port")
    if "grpc" in probe:
        yield from port_number(probe["grpc"]["port"], f"{path}.grpc.port")
    for name in (
        "initialDelaySeconds",
        "timeoutSeconds",
        "periodSeconds",
        "successThreshold",
        "failureThreshold",
    ):
        if probe.get(name, 0) < 0:
            yield status_errors.invalid(f"{path}.{name}", probe[name], "must be greater than or equal to 0")
    if needs_one_success and probe["successThreshold"] != 1:
        yield status_errors.invalid(f"{path}.successThreshold", probe["successThreshold"], "must be 1")


def port_number(port: Any, path: str) -> Iterator[Cause]:
    """Yield the broken rules of a port number."""
    if not 1 <= port <= 65535:
        yield status_errors.invalid(path, port, "must be between 1 and 65535, inclusive")


def port_or_name(port: Any, path: str) -> Iterator[Cause]:
    """Yield the broken rules of a port's number or name."""
    if isinstance(port, int):
        yield from port_number(port, path)
    elif len(port) > 15 or not _PORT_NAME.fullmatch(port):
        rule = (
            "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-), at most 15, "
            "at least one letter"
        )
        yield status_errors.invalid(path, port, rule)

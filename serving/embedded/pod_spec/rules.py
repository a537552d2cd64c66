"""Refuses fields of a Pod that one machine does not support, by their paths. Pure.

The API server applies these rules to Pods and templates without knowing the node; the kubelet applies them
again before a container starts, with the facts of its machine.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from serving.embedded.pod_spec import (
    cpuset,
    environment,
    gpu_limits,
    object_names,
    resource_limits,
    termination_fields,
    volume_mounts,
)
from serving.errors import Cause

_POD_FIELDS = {
    "hostNetwork": "every Pod has an address of its own",
    "hostPID": "the node decides which processes a container sees",
    "hostIPC": "not supported on one machine",
    "hostAliases": "there is no name resolution per Pod",
    "nodeSelector": "there is one node",
    "affinity": "there is one node",
    "readinessGates": "no controller sets such conditions here",
    "schedulingGates": "there is no scheduler",
    "ephemeralContainers": "not supported on one machine",
    "dnsConfig": "there is no name resolution per Pod",
    "overhead": "there are no sandboxes with a cost",
    "resources": "limits are per container",
    "activeDeadlineSeconds": "only a Job has a deadline here",
    "automountServiceAccountToken": "there are no service accounts",
    "evictionResponders": "nothing is evicted",
    "hostnameOverride": "processes see the machine's name",
    "resourceClaims": "there is no dynamic resource allocation",
    "runtimeClassName": "there is one way to run a container",
    "schedulingGroup": "there is no scheduler",
    "setHostnameAsFQDN": "processes see the machine's name",
}
_POD_VALUES: dict[str, tuple[Any, ...]] = {
    "dnsPolicy": ("ClusterFirst", "Default"),
    "hostUsers": (True,),
    "os": ({"name": "linux"},),
    "schedulerName": ("default-scheduler",),
}
"""Fields of which only these values are supported; the first is the default."""
_SECURITY = {
    "runAsUser": "the node decides the user",
    "runAsGroup": "the node decides the group",
    "fsGroup": "the node decides the group",
    "supplementalGroups": "containers have no other groups",
    "seLinuxOptions": "not supported on one machine",
    "seccompProfile": "the node decides the filter, so that the type can only be RuntimeDefault",
    "appArmorProfile": "not supported on one machine",
    "sysctls": "the kernel is shared",
    "windowsOptions": "this is not Windows",
    "privileged": "containers are never privileged",
    "allowPrivilegeEscalation": "containers cannot gain privileges",
    "readOnlyRootFilesystem": "not supported on one machine",
    "procMount": "not supported on one machine",
}
_SECURITY_VALUES = {"seccompProfile": {"type": "RuntimeDefault"}}
"""Supported values of refused fields. The node is the container runtime: its filter is RuntimeDefault."""
_CONTAINER = {
    "stdin": "there is no attach",
    "stdinOnce": "there is no attach",
    "tty": "there is no attach",
    "volumeDevices": "there are no block devices",
    "restartPolicy": "sidecar containers are not supported",
    "restartPolicyRules": "there is one restart policy per Pod",
}


def refusals(
    pod: Mapping[str, Any],
    images: Collection[str] | None = None,
    *,
    mounts: bool = True,
    protected: Collection[str] = (),
    data: str | None = None,
    cores: Collection[int] | None = None,
) -> list[Cause]:
    """Return every reason why this Pod cannot run on this machine.

    Args:
        pod: the object.
        images: the images of local runtimes; None where the node is not known.
        mounts: whether the node can mount (its agent runs as root).
        protected: directories of the interpreter, which a mount must not cover.
        data: the data directory, which no hostPath may include; None where it is not known.
        cores: the processor cores of the machine; None where the node is not known.
    """
    spec = pod["spec"]
    causes = [Cause(f"spec.{field}", reason) for field, reason in _POD_FIELDS.items() if spec.get(field)]
    if refusal := cpuset.refusal(pod["metadata"], cores):
        causes.append(Cause(cpuset.FIELD, refusal))
    for field, values in _POD_VALUES.items():
        if spec.get(field, values[0]) not in values:
            allowed = ", ".join(str(value) for value in values)
            causes.append(Cause(f"spec.{field}", f"on one machine it can only be {allowed}"))
    causes += _security("spec.securityContext", spec.get("securityContext") or {})
    namespace = pod["metadata"].get("namespace") or ""
    causes += volume_mounts.volume_refusals(spec.get("volumes") or [], data, namespace)
    causes += object_names.refusals(spec)
    for kind in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(kind) or []):
            path = f"spec.{kind}[{index}]"
            causes += _container(path, container, pod, images)
            causes += termination_fields.refusals(path, container, mounts=mounts)
            causes += volume_mounts.mount_refusals(path, container, spec, mounts=mounts, protected=protected)
    return causes


def _security(path: str, context: Mapping[str, Any]) -> list[Cause]:
    # 0 is a user id and must be refused; False is the default.
    fields = {field for field, value in context.items() if value or (value == 0 and value is not False)}
    fields -= {field for field, value in _SECURITY_VALUES.items() if context.get(field) == value}
    causes = [Cause(f"{path}.{field}", reason) for field, reason in _SECURITY.items() if field in fields]
    if (context.get("capabilities") or {}).get("add"):
        causes.append(Cause(f"{path}.capabilities.add", "containers have no capabilities"))
    return causes


def _container(
    path: str, container: Mapping[str, Any], pod: Mapping[str, Any], images: Collection[str] | None
) -> Iterator[Cause]:
    for field, reason in _CONTAINER.items():
        if container.get(field):
            yield Cause(f"{path}.{field}", reason)
    image = container.get("image", "")
    if images is not None and image not in images and not container.get("command"):
        yield Cause(
            f"{path}.image", f"{image!r} is no local runtime ({', '.join(sorted(images))}); set `command`"
        )
    yield from _security(f"{path}.securityContext", container.get("securityContext") or {})
    for index, port in enumerate(container.get("ports") or []):
        if port.get("hostPort"):
            yield Cause(f"{path}.ports[{index}].hostPort", "ports are on the Pod's own address")
    if (container.get("resources") or {}).get("claims"):
        yield Cause(f"{path}.resources.claims", "there is no dynamic resource allocation")
    yield from gpu_limits.refusals(f"{path}.resources.limits", container)
    try:
        resource_limits.limits(container)
    except ValueError as error:
        yield Cause(f"{path}.resources.limits", str(error))
    yield from _hooks_and_probes(path, container)
    yield from _environment(path, container, pod)


def _hooks_and_probes(path: str, container: Mapping[str, Any]) -> Iterator[Cause]:
    lifecycle = container.get("lifecycle") or {}
    for field in lifecycle.keys() - {"preStop"}:
        yield Cause(f"{path}.lifecycle.{field}", "not supported on one machine")
    for field in (lifecycle.get("preStop") or {}).keys() - {"exec", "httpGet", "sleep"}:
        yield Cause(f"{path}.lifecycle.preStop.{field}", "use exec, httpGet or sleep")
    for kind in ("readinessProbe", "livenessProbe", "startupProbe"):
        probe = container.get(kind) or {}
        if (probe.get("grpc") or {}).get("mode", "Plaintext") != "Plaintext":
            yield Cause(f"{path}.{kind}.grpc.mode", "must be Plaintext on one machine")
        if kind == "readinessProbe" and "terminationGracePeriodSeconds" in probe:
            yield Cause(f"{path}.{kind}.terminationGracePeriodSeconds", "must not be set: it stops nothing")
        if probe and not probe.keys() & {"httpGet", "tcpSocket", "exec", "grpc"}:
            yield Cause(f"{path}.{kind}", "must have one of httpGet, tcpSocket, grpc, exec")


def _environment(path: str, container: Mapping[str, Any], pod: Mapping[str, Any]) -> Iterator[Cause]:
    for index, entry in enumerate(container.get("env") or []):
        at = f"{path}.env[{index}].valueFrom"
        source = entry.get("valueFrom") or {}
        for field in source.keys() - {"fieldRef", "secretKeyRef", "configMapKeyRef"}:
            yield Cause(f"{at}.{field}", "not supported on one machine")
        if "fieldRef" in source:
            field_path = source["fieldRef"].get("fieldPath", "")
            if environment.field(pod, field_path, ip="", node="") is None:  # the value does not matter
                yield Cause(f"{at}.fieldRef.fieldPath", f"{field_path!r} is not supported")

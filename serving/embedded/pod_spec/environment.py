"""The environment and the arguments of a container, composed as Kubernetes does. Pure."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

Values = Mapping[str, Mapping[str, bytes]]
"""Data of ConfigMaps or Secrets by the object's name."""

BASE = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/tmp",  # noqa: S108 private to the container
    "LANG": "C.UTF-8",
}
"""The variables of every container that its spec does not set."""
_REFERENCE = re.compile(r"\$(?:\$|\(([^)]*)\))")


class References(NamedTuple):
    """The names of the objects that a container's environment refers to."""

    config_maps: set[str]
    secrets: set[str]


class Missing(ValueError):
    """A ConfigMap, Secret or key that does not exist (yet)."""


def expand(text: str, env: Mapping[str, str]) -> str:
    """Replace `$(NAME)` by the value of NAME if `env` has it, and `$$` by `$`.

    k8s.io/kubernetes/third_party/forked/golang/expansion/expand.go
    """

    def value(match: re.Match[str]) -> str:
        name = match.group(1)
        if name is None:
            return "$"
        return env.get(name, match.group(0))

    return _REFERENCE.sub(value, text)


def field(pod: Mapping[str, Any], path: str, ip: str, node: str) -> str | None:
    """Return the value of a fieldRef; None where the field is not supported."""
    meta = pod["metadata"]
    plain = {
        "metadata.name": meta["name"],
        "metadata.namespace": meta.get("namespace", ""),
        "metadata.uid": meta["uid"],
        "status.podIP": ip,
        "status.hostIP": "127.0.0.1",
        "spec.nodeName": node,
        "spec.serviceAccountName": pod["spec"].get("serviceAccountName", "default"),
    }
    if path in plain:
        return str(plain[path])
    match = re.fullmatch(r"metadata\.(labels|annotations)\['([^']+)'\]", path)
    return str((meta.get(match.group(1)) or {}).get(match.group(2), "")) if match else None


def references(container: Mapping[str, Any]) -> References:
    """Return the names of the ConfigMaps and Secrets that the container's environment refers to."""
    maps: set[str] = set()
    secrets: set[str] = set()
    for entry in container.get("env") or []:
        source = entry.get("valueFrom") or {}
        maps |= {source["configMapKeyRef"]["name"]} if "configMapKeyRef" in source else set()
        secrets |= {source["secretKeyRef"]["name"]} if "secretKeyRef" in source else set()
    for entry in container.get("envFrom") or []:
        maps |= {entry["configMapRef"]["name"]} if "configMapRef" in entry else set()
        secrets |= {entry["secretRef"]["name"]} if "secretRef" in entry else set()
    return References(maps, secrets)


def _key(values: Values, kind: str, ref: Mapping[str, Any]) -> str | None:
    """Return the value of a configMapKeyRef or secretKeyRef; None if it is optional and missing.

    Raises:
        Missing: the object or the key does not exist, and is not optional.
    """
    data = values.get(ref["name"])
    if data is not None and ref["key"] in data:
        return data[ref["key"]].decode(errors="replace")
    if ref.get("optional"):
        return None
    problem = "not found" if data is None else f"has no key {ref['key']!r}"
    raise Missing(f"{kind} {ref['name']!r} {problem}")


def search_path(programs: str) -> str:
    """Return a container's PATH, which has `programs`, the directory of Slipway's interpreter.

    Unless `BASE` has that directory already, it is the first entry.
    """
    path = BASE["PATH"]
    return path if programs in path.split(":") else f"{programs}:{path}"


def environment(
    pod: Mapping[str, Any],
    container: Mapping[str, Any],
    *,
    ip: str,
    node: str,
    programs: str,
    maps: Values,
    secrets: Values,
) -> dict[str, str]:
    """Return the complete environment of the container; it inherits nothing from the agent.

    Later entries may refer to earlier ones by `$(NAME)`. `POD_IP`, `HOST` (the same), `HOSTNAME`, `PORT`
    (the first containerPort) and the variables of `BASE` are set unless the Pod sets them.

    Args:
        pod: the Pod.
        container: of its spec.
        ip: the Pod's address.
        node: the node's name.
        programs: the directory of Slipway's interpreter.
        maps: the data of the ConfigMaps that the environment refers to.
        secrets: the data of the Secrets that it refers to.

    Raises:
        Missing: an entry refers to an object or a key that does not exist.
    """
    env = BASE | {"PATH": search_path(programs)}
    env |= {"POD_IP": ip, "HOST": ip, "HOSTNAME": pod["spec"].get("hostname") or pod["metadata"]["name"]}
    ports = container.get("ports") or []
    if ports:
        env["PORT"] = str(ports[0]["containerPort"])
    for entry in container.get("envFrom") or []:
        for field_name, kind, values in (
            ("configMapRef", "configmap", maps),
            ("secretRef", "secret", secrets),
        ):
            if ref := entry.get(field_name):
                data = values.get(ref["name"])
                if data is None and not ref.get("optional"):
                    raise Missing(f"{kind} {ref['name']!r} not found")
                prefix = entry.get("prefix", "")
                env |= {prefix + key: value.decode(errors="replace") for key, value in (data or {}).items()}
    for entry in container.get("env") or []:
        value = _value(pod, entry, env, ip=ip, node=node, maps=maps, secrets=secrets)
        if value is not None:
            env[entry["name"]] = value
    return env


def _value(
    pod: Mapping[str, Any],
    entry: Mapping[str, Any],
    env: Mapping[str, str],
    *,
    ip: str,
    node: str,
    maps: Values,
    secrets: Values,
) -> str | None:
    """Return the value of an entry of `env`; None if it is optional and missing."""
    source = entry.get("valueFrom")
    if not source:
        return expand(str(entry.get("value", "")), env)
    if "fieldRef" in source:
        return field(pod, source["fieldRef"]["fieldPath"], ip, node)
    if "configMapKeyRef" in source:
        return _key(maps, "configmap", source["configMapKeyRef"])
    return _key(secrets, "secret", source["secretKeyRef"])


def arguments(container: Mapping[str, Any], image: Sequence[str] | None, env: Mapping[str, str]) -> list[str]:
    """Return the command line: `command` or that of the image (`image`), then `args`."""
    command = container.get("command") or []
    start = [expand(str(word), env) for word in command] or list(image or [])
    return start + [expand(str(word), env) for word in container.get("args") or []]

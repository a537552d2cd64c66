"""Which containers are forked from a zygote, and for which namespaces and images one is kept. Objects in, answers out.

A forked process is a new one in all but what an interpreter does before the program begins: what the Pod says about
that cannot be honoured any more, so such a container is an ordinary new process.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from serving.embedded.kubelet.container import environment
from serving.resources import names

BEFORE_MAIN = ("PYTHON", "LD_", "MALLOC_", "GLIBC_", "LC_", "LANGUAGE", "TZ")
"""Beginnings of the names of variables that the interpreter and the C library read when they start."""
DISABLED = "disabled"


class Kept(NamedTuple):
    """What one zygote is for; nothing else is ever forked from it."""

    namespace: str
    image: str


def can_fork(meta: Mapping[str, Any], container: Mapping[str, Any], images: Collection[str]) -> bool:
    """Whether a zygote is of use to a container.

    Args:
        meta: the metadata of its Pod, or of the template.
        container: of a Pod, or of a template.
        images: those whose processes can be forked.
    """
    return (
        (meta.get("annotations") or {}).get(names.ZYGOTE_ANNOTATION) != DISABLED
        and container.get("image") in images
        and not container.get("command")
        and not _runs_commands(container)
        and not any(entry["name"].startswith(BEFORE_MAIN) for entry in container.get("env") or [])
    )


def _runs_commands(container: Mapping[str, Any]) -> bool:
    """Whether it has exec probes or hooks: they get their environment from /proc, which tells the zygote's."""
    actions = [container.get(f"{kind}Probe") or {} for kind in ("startup", "readiness", "liveness")]
    actions.append((container.get("lifecycle") or {}).get("preStop") or {})
    return any("exec" in action for action in actions)


def honoured(env: Mapping[str, str]) -> bool:
    """Whether a forked process can have this environment (envFrom may bring what nobody named)."""
    said = {name for name in env if name.startswith(BEFORE_MAIN)}
    return not said and env.get("LANG") == environment.BASE["LANG"]


def kept_for(deployment: Mapping[str, Any] | None, images: Collection[str]) -> set[Kept]:
    """Return what a Deployment wants zygotes of, whatever its replicas are: from zero it is to be quick too."""
    if deployment is None:
        return set()
    template = deployment["spec"]["template"]
    meta = template.get("metadata") or {}
    return {
        Kept(deployment["metadata"]["namespace"], container["image"])
        for container in template["spec"].get("containers") or []
        if can_fork(meta, container, images)
    }


class Wanted:
    """The zygotes that all Deployments together want."""

    def __init__(self) -> None:
        self._count: Counter[Kept] = Counter()

    def changed(self, before: Iterable[Kept], after: Iterable[Kept]) -> bool:
        """Take over what one Deployment wanted and wants; returns whether it made a difference to the whole."""
        was = self.all()
        self._count.update(after)
        self._count.subtract(before)
        self._count = +self._count
        return was != self.all()

    def all(self) -> frozenset[Kept]:
        """Return what is wanted now."""
        return frozenset(self._count)

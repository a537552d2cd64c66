"""Decides which containers are forked from a zygote, and which zygotes are kept. Pure.

In a forked process the interpreter has already started, so a container with settings for the start of the
interpreter is executed as a new process.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from serving.embedded.pod_spec import environment
from serving.resources import names

BEFORE_MAIN = ("PYTHON", "LD_", "MALLOC_", "GLIBC_", "LC_", "LANGUAGE", "TZ")
"""Prefixes of variables that the interpreter and the C library read at their start."""
DISABLED = "disabled"
"""The value of the annotation `names.ZYGOTE_ANNOTATION` by which a Pod refuses to be forked."""


class ZygoteKey(NamedTuple):
    """The namespace and the image of a zygote, which is forked only for containers that have both."""

    namespace: str
    image: str


def can_fork(meta: Mapping[str, Any], container: Mapping[str, Any], images: Collection[str]) -> bool:
    """Whether a container can be forked from a zygote.

    Args:
        meta: the metadata of its Pod or template.
        container: a container of the Pod or template.
        images: the images whose processes can be forked.
    """
    return (
        (meta.get("annotations") or {}).get(names.ZYGOTE_ANNOTATION) != DISABLED
        and container.get("image") in images
        and not container.get("command")
        and not _runs_commands(container)
        and not any(entry["name"].startswith(BEFORE_MAIN) for entry in container.get("env") or [])
    )


def _runs_commands(container: Mapping[str, Any]) -> bool:
    """Whether the container has exec probes or hooks.

    Their environment is read from /proc/PID/environ, which for a forked process has the zygote's.
    """
    actions = [container.get(f"{kind}Probe") or {} for kind in ("startup", "readiness", "liveness")]
    actions.append((container.get("lifecycle") or {}).get("preStop") or {})
    return any("exec" in action for action in actions)


def can_fork_with(env: Mapping[str, str]) -> bool:
    """Whether a forked process can have this environment.

    `env` is complete: unlike `can_fork`, this check also covers variables of `envFrom`.
    """
    has_early = any(name.startswith(BEFORE_MAIN) for name in env)
    return not has_early and env.get("LANG") == environment.BASE["LANG"]


def zygotes_for(deployment: Mapping[str, Any] | None, images: Collection[str]) -> set[ZygoteKey]:
    """Return the zygotes of a Deployment, even with zero replicas: a start from zero must be fast.

    `images` are the images whose processes can be forked.
    """
    if deployment is None:
        return set()
    template = deployment["spec"]["template"]
    meta = template.get("metadata") or {}
    return {
        ZygoteKey(deployment["metadata"]["namespace"], container["image"])
        for container in template["spec"].get("containers") or []
        if can_fork(meta, container, images)
    }


class NeededZygotes:
    """The zygotes of all Deployments."""

    def __init__(self) -> None:
        self._count: Counter[ZygoteKey] = Counter()

    def changed(self, before: Iterable[ZygoteKey], after: Iterable[ZygoteKey]) -> bool:
        """Replace the needs of one Deployment; return whether `all()` has changed."""
        old = self.all()
        self._count.update(after)
        self._count.subtract(before)
        self._count = +self._count
        return old != self.all()

    def all(self) -> frozenset[ZygoteKey]:
        """Return the zygotes that are needed now."""
        return frozenset(self._count)

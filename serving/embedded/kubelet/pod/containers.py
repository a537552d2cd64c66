"""The state of the containers of one Pod, and how its tasks wait for a change."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from serving.embedded.kubelet.pod.lifecycle import Container
from serving.embedded.kubelet.records import RunDirectory
from serving.objects import Object

GROUPS = ("initContainers", "containers")


class Containers:
    """The state of every container of a Pod, by name."""

    def __init__(self, pod_spec: Object) -> None:
        self._groups = {group: [c["name"] for c in pod_spec.get(group) or []] for group in GROUPS}
        self.specs: dict[str, Object] = {
            spec["name"]: spec for group in GROUPS for spec in pod_spec.get(group) or []
        }
        self.states: dict[str, Container] = {
            name: Container(name, spec.get("image", "")) for name, spec in self.specs.items()
        }
        self.stopping: set[str] = set()
        """Containers that are being stopped because a probe failed."""
        self.terminating = False
        """The Pod is being deleted."""
        self.changed = asyncio.Event()
        """Set by every update; `PodRunner` clears it before it plans."""
        self._updated = asyncio.Event()
        """Set and replaced by each update: every task in `until` wakes, and none has to clear it."""

    @property
    def inits(self) -> list[Container]:
        """Return the init containers, in order."""
        return [self.states[name] for name in self._groups["initContainers"]]

    @property
    def mains(self) -> list[Container]:
        """Return the other containers, in order."""
        return [self.states[name] for name in self._groups["containers"]]

    def update(self, name: str, **changes: Any) -> None:
        """Change fields of a container's state, and wake the waiting tasks."""
        self.states[name] = replace(self.states[name], **changes)
        self.changed.set()
        self._updated.set()
        self._updated = asyncio.Event()

    def is_running(self, run: RunDirectory) -> bool:
        """Whether this run is the current one and has not ended."""
        state = self.states[run.container]
        return state.running and state.run is not None and state.run.index == run.index

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until the condition holds, which is evaluated after every update."""
        while not condition():
            await self._updated.wait()

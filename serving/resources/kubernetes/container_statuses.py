"""The statuses of a Pod's containers, and the reasons of their states. Pure."""

from collections.abc import Mapping
from typing import Any

from serving.objects import Object

STARTING = ("ContainerCreating", "PodInitializing")
"""Reasons of a waiting container that pass by themselves."""
NODE_SHUTDOWN = "NodeShutdown"
"""Reason of a terminated container whose node was shut down."""
STATUS_UNKNOWN = "ContainerStatusUnknown"
"""Reason of a terminated container whose end nobody has recorded, as the machine was restarted."""
ENDED_WITH_THE_NODE = (STATUS_UNKNOWN, NODE_SHUTDOWN)
"""Reasons of a terminated container that are no fault of the container."""


def of(status: Mapping[str, Any]) -> list[Object]:
    """Return the statuses of all containers in the status of a Pod, init containers first."""
    return [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]

"""The phases of Pods. Pure."""

from collections.abc import Mapping
from typing import Any

ENDED = ("Succeeded", "Failed")
"""The final phases: all containers have ended, and the node starts none again."""


def has_ended(pod: Mapping[str, Any]) -> bool:
    """Whether the Pod has a final phase."""
    return (pod.get("status") or {}).get("phase") in ENDED

"""Events of a plan, which the controller emits."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class EventToEmit:
    """An Event about the planned object, to emit once the plan has been carried out."""

    reason: str
    """CamelCase."""
    message: str
    type: Literal["Normal", "Warning"] = "Normal"

"""What the generator sends: values only, so that the process that decides and the one that sends agree on them."""

from dataclasses import dataclass, field
from typing import Literal

Mode = Literal["closed", "open"]


@dataclass(frozen=True)
class LoadRequest:
    """One request, as it is sent."""

    method: str
    path: str
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    at: float | None = None
    """Of a recorded request: seconds after the first one."""
    stream: bool = False
    """The answer is a stream of completions, whose tokens are timed."""


@dataclass(frozen=True)
class LoadPlan:
    """What is asked, and how it is timed."""

    mode: Mode
    requests: tuple[LoadRequest, ...]
    """Sent in turn, from the first again after the last; none where there is a locustfile."""
    seed: int = 0
    """Of the arrivals of an open loop."""
    locustfile: str | None = None
    """Source of a locustfile whose users are run instead of `requests`."""

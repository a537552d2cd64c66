"""The load plan: the requests and their timing, as values for the parent and the locust processes."""

from dataclasses import dataclass, field
from typing import Literal

Mode = Literal["closed", "open"]


@dataclass(frozen=True)
class LoadRequest:
    """One HTTP request to the target."""

    method: str
    path: str
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    at: float | None = None
    """Recorded time in seconds, from any origin; None if the request has no recorded time. An open loop keeps
    the proportions of the recorded gaps; a closed loop ignores them."""
    stream: bool = False
    """Whether the response is a stream of completions, whose tokens are timed."""


@dataclass(frozen=True)
class LoadPlan:
    """The requests and their timing."""

    mode: Mode
    requests: tuple[LoadRequest, ...]
    """Sent in turn, again from the first after the last; empty with a locustfile."""
    seed: int = 0
    """Seed of the random arrivals of an open loop without recorded times."""
    locustfile: str | None = None
    """Source of a locustfile whose users replace `requests`."""

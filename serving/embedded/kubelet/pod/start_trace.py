"""The phases of a replica's start, measured by the node and the runtime, as a Pod condition. Pure.

The runtime reports its phases in the answer to the readiness probe, by `Server-Timing`
(https://www.w3.org/TR/server-timing/) and `names.STARTED_HEADER`. Without these, all time after the
start of the process counts as `probe`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

import orjson

from serving.resources import names

StartMethod = Literal["Cold", "Zygote"]
_NUMBER = r"[0-9]{1,12}(?:\.[0-9]{1,12})?"
_METRIC = re.compile(rf"(?<![A-Za-z])([A-Za-z]+)\s*;\s*dur=({_NUMBER})(?![0-9.])")
"""A name and its duration in milliseconds. A match starts only at the start of a word: a replica chooses the
text, and a match from every letter of a long word would take quadratic time."""


@dataclass(frozen=True)
class NodeStart:
    """The node's part of a start; times in seconds."""

    seen: datetime
    """UTC, when the start became necessary."""
    method: StartMethod = "Cold"
    fetch: float = 0.0
    """Of fetching the images of the container's volumes."""
    verify: float = 0.0
    """Of verifying their seals."""
    imports: float = 0.0
    """Of waiting for the imports of the zygote."""


@dataclass(frozen=True)
class StartTrace:
    """One start. The `seconds` of all `names.START_PHASES` add up to `ready - seen`.

    They add up to more if the replica reports phases that are longer than that.
    """

    method: StartMethod
    seen: datetime
    ready: datetime
    seconds: Mapping[str, float] = field(default_factory=dict)

    def message(self) -> str:
        """Return the condition's message: unix seconds, and milliseconds by phase."""
        figures: dict[str, float] = {"seen": self.seen.timestamp(), "ready": self.ready.timestamp()}
        figures |= {name: round(1000 * self.seconds[name], 3) for name in names.START_PHASES}
        return orjson.dumps(figures).decode()


def trace(beginning: NodeStart, begun: datetime, ready: datetime, headers: Mapping[str, str]) -> StartTrace:
    """Return the phases of a start.

    Args:
        beginning: the node's part, before the process began.
        begun: UTC, when the process began.
        ready: UTC, when the probe's answer came.
        headers: of this answer; names in lower case.
    """
    timings = {name: float(value) / 1000 for name, value in _METRIC.findall(headers.get("server-timing", ""))}
    main_began = _seconds(headers.get(names.STARTED_HEADER, "")) or begun.timestamp()
    before_spawn = beginning.fetch + beginning.verify + beginning.imports
    spent = {
        "fetch": beginning.fetch,
        "verify": beginning.verify + timings.get("verify", 0.0),
        "spawn": max(0.0, main_began - beginning.seen.timestamp() - before_spawn),
        "import": beginning.imports + timings.get("import", 0.0),
        "load": timings.get("load", 0.0),
        "warmup": timings.get("warmup", 0.0),
    }
    probe = (ready - beginning.seen).total_seconds() - sum(spent.values())
    return StartTrace(beginning.method, beginning.seen, ready, {**spent, "probe": max(0.0, probe)})


def _seconds(text: str) -> float | None:
    """Parse a number of seconds; None if the text, which a replica chooses, is no number."""
    return float(text) if re.fullmatch(_NUMBER, text) else None


def condition(start: StartTrace) -> tuple[str, bool, str, str]:
    """Return the condition's type, whether it is True, its reason and its message."""
    return names.STARTED_CONDITION, True, start.method, start.message()


def kept(conditions: list[dict[str, Any]]) -> list[tuple[str, bool, str, str]]:
    """Return the condition of an earlier start from those of the Pod's status, in the form of `condition`."""
    return [
        (names.STARTED_CONDITION, True, c.get("reason", ""), c.get("message", ""))
        for c in conditions
        if c["type"] == names.STARTED_CONDITION
    ]

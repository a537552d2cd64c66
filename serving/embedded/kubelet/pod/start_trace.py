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
"""Begins where a word begins: a replica chooses the text, and a long word is read once."""


@dataclass(frozen=True)
class NodeStart:
    """The node's part of a start: `seen` (UTC) is when it became necessary; the others are seconds."""

    seen: datetime
    method: StartMethod = "Cold"
    fetch: float = 0.0
    verify: float = 0.0
    imports: float = 0.0


@dataclass(frozen=True)
class StartTrace:
    """One start: `seconds` by phase add up to `ready - seen`."""

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
    started = _seconds(headers.get(names.STARTED_HEADER, "")) or begun.timestamp()
    inside = {name: timings.get(name, 0.0) for name in ("import", "verify", "load", "warmup")}
    before = beginning.fetch + beginning.verify + beginning.imports
    spent = {
        "fetch": beginning.fetch,
        "verify": beginning.verify + inside.pop("verify"),
        "spawn": max(0.0, started - beginning.seen.timestamp() - before),
        **inside,
        "import": beginning.imports + inside["import"],
    }
    probe = (ready - beginning.seen).total_seconds() - sum(spent.values())
    return StartTrace(beginning.method, beginning.seen, ready, {**spent, "probe": max(0.0, probe)})


def _seconds(text: str) -> float | None:
    return float(text) if re.fullmatch(_NUMBER, text) else None


def condition(start: StartTrace) -> tuple[str, bool, str, str]:
    """Return type, status, reason and message."""
    return names.STARTED_CONDITION, True, start.method, start.message()


def kept(conditions: list[dict[str, Any]]) -> list[tuple[str, bool, str, str]]:
    """Return the stored condition, if there is one."""
    return [
        (names.STARTED_CONDITION, True, c.get("reason", ""), c.get("message", ""))
        for c in conditions
        if c["type"] == names.STARTED_CONDITION
    ]

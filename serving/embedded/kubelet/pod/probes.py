"""The schedule of probes, and the verdicts from their answers. Pure.

https://kubernetes.io/docs/concepts/configuration/liveness-readiness-startup-probes/

One difference from the kubelet makes starts fast. Until a readiness or startup probe has succeeded once, it
is repeated after a tenth of the container's running time (between `SHORTEST` and `FIRST_PERIOD` seconds;
commands: every second) instead of every `periodSeconds`. Such early failures count towards
`failureThreshold` at most once per `periodSeconds`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal

ProbeKind = Literal["readiness", "liveness", "startup"]
KINDS: tuple[ProbeKind, ...] = ("startup", "readiness", "liveness")

FIRST_PERIOD = 0.1
"""Longest pause between early probes, in seconds: a tenth of the kubelet's smallest period."""
SHORTEST = 0.002
"""Shortest pause between probes, in seconds: a forked replica listens after some tens of milliseconds; a
refused connection costs 0.2 ms."""
SHARE = 0.1
"""Pause between early probes as a share of the running time: a start takes longer by this share at most."""
FIRST_EXEC_PERIOD = 1.0
"""Seconds, for commands (each is a new process) and for probes that have reached their failure threshold."""


@dataclass(frozen=True)
class ContainerProbe:
    """One probe with its defaults filled in; times in seconds."""

    kind: ProbeKind
    action: Mapping[str, Any]
    initial_delay: float
    period: float
    timeout: float
    successes: int
    """`successThreshold`."""
    failures: int
    """`failureThreshold`."""
    grace: float | None = None
    """Seconds from SIGTERM to SIGKILL after a failure; None for those of the Pod."""


@dataclass(frozen=True)
class ProbeVerdict:
    """The result of all answers: `ok` is None until a threshold has been reached."""

    ok: bool | None = None
    streak_ok: int = 0
    """Successes in a row."""
    streak_bad: int = 0
    """Failures in a row that count towards `failureThreshold`."""
    counted_at: float | None = None
    """When the last of these failures was, in seconds of a monotonic clock."""
    proven: bool = False
    """The probe has succeeded once."""


def parse(container: Mapping[str, Any]) -> list[ContainerProbe]:
    """Return the container's probes; defaults are those of core/v1 Probe."""
    probes = []
    for kind in KINDS:
        spec = container.get(f"{kind}Probe")
        if spec:
            probes.append(
                ContainerProbe(
                    kind,
                    action={
                        key: spec[key] for key in ("httpGet", "tcpSocket", "grpc", "exec") if key in spec
                    },
                    initial_delay=float(spec.get("initialDelaySeconds") or 0),
                    period=float(spec.get("periodSeconds") or 10),
                    timeout=float(spec.get("timeoutSeconds") or 1),
                    successes=int(spec.get("successThreshold") or 1) if kind == "readiness" else 1,
                    failures=int(spec.get("failureThreshold") or 3),
                    grace=spec.get("terminationGracePeriodSeconds"),
                )
            )
    return probes


def judge(probe: ContainerProbe, verdict: ProbeVerdict, at: float, *, success: bool) -> ProbeVerdict:
    """Return the verdict after one more answer, at `at` (seconds of a monotonic clock)."""
    if success:
        streak = verdict.streak_ok + 1
        ok = True if streak >= probe.successes else verdict.ok
        return ProbeVerdict(ok, streak_ok=streak, proven=True)
    if probe.kind != "liveness" and not verdict.proven and verdict.counted_at is not None:
        # The tolerance is for a probe that comes shortly before the end of the period.
        counts_from = verdict.counted_at + probe.period - FIRST_PERIOD / 2
        if at < counts_from:
            return replace(verdict, streak_ok=0)
    streak = verdict.streak_bad + 1
    ok = False if streak >= probe.failures else verdict.ok
    return ProbeVerdict(ok, streak_bad=streak, counted_at=at, proven=verdict.proven)


def ran_for(started_at: datetime, now: datetime) -> float:
    """Return the seconds since a container's start; 0 where the clock was set back since."""
    return max((now - started_at).total_seconds(), 0.0)


def next_delay(probe: ContainerProbe, verdict: ProbeVerdict, since_start: float, took: float) -> float:
    """Return the seconds from the last answer to the next probe.

    After the first success, `periodSeconds` lie between the beginnings of two probes, as at the kubelet.

    Args:
        probe: the probe.
        verdict: the result of its answers so far.
        since_start: seconds since the container's start.
        took: seconds from the last probe to its answer.
    """
    if probe.kind != "liveness" and not verdict.proven:
        slow = "exec" in probe.action or verdict.ok is False
        fast_period = min(max(SHARE * since_start, SHORTEST), FIRST_PERIOD)
        return min(FIRST_EXEC_PERIOD if slow else fast_period, probe.period)
    return max(probe.period - took, SHORTEST)


def port_of(container: Mapping[str, Any], port: int | str) -> int:
    """Return a probe's port; a name is that of a containerPort.

    Raises:
        ValueError: no containerPort has this name.
    """
    if isinstance(port, int) or port.isdigit():
        return int(port)
    for declared in container.get("ports") or []:
        if declared.get("name") == port:
            return int(declared["containerPort"])
    raise ValueError(f"no containerPort is named {port!r}")

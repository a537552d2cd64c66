"""The lifecycle of one Pod: the containers to start, the times, and the phase. Pure.

https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from signal import SIGKILL
from typing import Literal

from serving.backoff import backoff_seconds
from serving.resources.kubernetes import pod_phases
from serving.resources.kubernetes.container_statuses import NODE_SHUTDOWN, STATUS_UNKNOWN
from serving.settings import NodeSettings

RestartPolicy = Literal["Always", "OnFailure", "Never"]
Phase = Literal["Pending", "Running", "Succeeded", "Failed"]


@dataclass(frozen=True)
class ContainerExit:
    """The exit of a run; after a signal, `code` is 128 + its number."""

    code: int
    reason: str
    message: str = ""
    signal: int = 0
    """The number of the signal that ended the process; 0 for none."""
    finished_at: datetime | None = None
    termination_message: str = ""
    """The message of the program itself; `message` is the node's."""

    @property
    def succeeded(self) -> bool:
        """Whether the program ended with 0, and not by a shutdown: after SIGTERM a program may exit with 0
        and unfinished work.
        """
        return self.code == 0 and self.reason != NODE_SHUTDOWN


@dataclass(frozen=True)
class ContainerRun:
    """One run of a container; the first has index 0."""

    index: int
    streak: int = 0
    """Consecutive restarts before this run, without a long run among them: the exponent of the back-off."""
    started_at: datetime | None = None
    exit: ContainerExit | None = None
    restart_count: int = 0
    """Earlier runs that ended by themselves, and not by a shutdown of the node."""


@dataclass(frozen=True)
class Blocked:
    """Why a container cannot be started now, and when to try again."""

    reason: str
    message: str
    until: datetime
    attempts: int = 1


@dataclass(frozen=True)
class Container:
    """The state of one container."""

    name: str
    image: str
    run: ContainerRun | None = None
    previous_run: ContainerRun | None = None
    """The run before `run`."""
    blocked: Blocked | None = None
    started: bool = False
    """The startup probe has succeeded, or, without one, the process runs."""
    ready: bool = False

    @property
    def running(self) -> bool:
        """Whether a run has begun and not ended."""
        return self.run is not None and self.run.exit is None


@dataclass(frozen=True)
class StartPlan:
    """The containers to start now, by name, and the time to plan again without a change."""

    start: tuple[str, ...] = ()
    wake_at: datetime | None = None
    backing_off: tuple[str, ...] = ()
    """Containers that have run and wait for their restart."""


def recorded_exit(
    code: int, signal: int, *, oom: bool, error: str, finished_at: datetime, shutdown: bool = False
) -> ContainerExit:
    """Return the exit from a shim's record, with the reasons of containerd's CRI plugin.

    `shutdown`: the node was being shut down.
    """
    if error:
        return ContainerExit(code, "StartError", error, signal, finished_at)
    if oom and signal == SIGKILL:
        return ContainerExit(
            code, "OOMKilled", "the container went over its memory limit", signal, finished_at
        )
    if shutdown:
        return ContainerExit(code, NODE_SHUTDOWN, "the node was shut down", signal, finished_at)
    return ContainerExit(code, "Completed" if code == 0 else "Error", "", signal, finished_at)


def unknown_exit(finished_at: datetime, message: str) -> ContainerExit:
    """Return the exit of a run whose end was not recorded, with the kubelet's reason and code."""
    return ContainerExit(128 + SIGKILL, STATUS_UNKNOWN, message, finished_at=finished_at)


def restarts(policy: RestartPolicy, exit_: ContainerExit) -> bool:
    """Whether a container with this exit is restarted."""
    return policy == "Always" or (policy == "OnFailure" and not exit_.succeeded)


def next_run(run: ContainerRun | None, settings: NodeSettings) -> ContainerRun:
    """Return the run after this one, or the first one."""
    if run is None:
        return ContainerRun(index=0)
    count = run.restart_count if _was_shut_down(run) else run.restart_count + 1
    return ContainerRun(run.index + 1, streak=_streak_after(run, settings), restart_count=count)


def _was_shut_down(run: ContainerRun) -> bool:
    """Whether `slipway down` ended the run: the next one counts as no restart, and waits for no back-off."""
    return run.exit is not None and run.exit.reason == NODE_SHUTDOWN


def _streak_after(run: ContainerRun, settings: NodeSettings) -> int:
    """Return the streak of the next run; a long run resets it, and a shutdown does not change it."""
    if _was_shut_down(run):
        return run.streak
    if run.exit and run.exit.finished_at and run.started_at:
        lasted = (run.exit.finished_at - run.started_at).total_seconds()
        if lasted >= settings.backoff_reset_seconds:
            return 1
    return run.streak + 1


def restart_at(run: ContainerRun, settings: NodeSettings) -> datetime | None:
    """Return when the next run may start; None where nothing delays it.

    The first restart is at once. The delay of the next one is `backoff_base_seconds`; it doubles with each
    restart, up to `backoff_cap_seconds`.
    """
    if run.exit is None or run.exit.finished_at is None or _was_shut_down(run):
        return None
    streak = _streak_after(run, settings)
    delay = backoff_seconds(streak - 1, settings.backoff_base_seconds, settings.backoff_cap_seconds)
    return run.exit.finished_at + timedelta(seconds=delay)


def retry_at(attempts: int, now: datetime, settings: NodeSettings) -> datetime:
    """Return when to retry a start that has failed `attempts` times, 1 or more.

    The back-off is that of restarts with a lower cap, as nothing has run.
    """
    delay = backoff_seconds(attempts, settings.backoff_base_seconds, settings.blocked_cap_seconds)
    return now + timedelta(seconds=delay)


def init_done(inits: Sequence[Container]) -> bool:
    """Whether all init containers have succeeded."""
    return all(c.run is not None and c.run.exit is not None and c.run.exit.succeeded for c in inits)


def phase(policy: RestartPolicy, inits: Sequence[Container], mains: Sequence[Container]) -> Phase:
    """Return the Pod's phase."""
    if policy == "Never" and any(c.run and c.run.exit and not c.run.exit.succeeded for c in inits):
        return "Failed"
    exits = [c.run.exit for c in mains if c.run is not None and c.run.exit is not None]
    if len(exits) == len(mains) and not any(restarts(policy, exit_) for exit_ in exits):
        return "Succeeded" if all(exit_.succeeded for exit_ in exits) else "Failed"
    return "Running" if any(c.run is not None for c in mains) else "Pending"


def start_plan(
    policy: RestartPolicy,
    inits: Sequence[Container],
    mains: Sequence[Container],
    now: datetime,
    settings: NodeSettings,
) -> StartPlan:
    """Return the containers to start: init containers in sequence, then all others together."""
    if phase(policy, inits, mains) in pod_phases.ENDED:
        return StartPlan()
    if not any(c.run for c in mains):  # once one has run, all init containers have succeeded
        for container in inits:
            if container.run is None or container.run.exit is None or not container.run.exit.succeeded:
                init_policy: RestartPolicy = "Never" if policy == "Never" else "OnFailure"
                return _start_plan([container], init_policy, now, settings)
    return _start_plan(mains, policy, now, settings)


def _start_plan(
    containers: Iterable[Container], policy: RestartPolicy, now: datetime, settings: NodeSettings
) -> StartPlan:
    start: list[str] = []
    backing_off: list[str] = []
    times: list[datetime] = []
    for container in containers:
        at = _start_at(container, policy, now, settings)
        if at is None:
            continue
        if at <= now:
            start.append(container.name)
        else:
            times.append(at)
            if container.run is not None and container.blocked is None:
                backing_off.append(container.name)
    return StartPlan(tuple(start), min(times, default=None), tuple(backing_off))


def _start_at(
    container: Container, policy: RestartPolicy, now: datetime, settings: NodeSettings
) -> datetime | None:
    """Return when a container may start; None while it runs, or if it has ended for good.

    After the clock was set back, an exit may lie in the future, or the end of a back-off further ahead than
    any back-off lasts. Such a time delays no start.
    """
    run, blocked = container.run, container.blocked
    if run is not None and (run.exit is None or not restarts(policy, run.exit)):
        return None
    due = now
    if run is not None and run.exit is not None and run.exit.finished_at and run.exit.finished_at <= now:
        due = restart_at(run, settings) or now
    if blocked is not None and blocked.until - now <= timedelta(seconds=settings.blocked_cap_seconds):
        due = max(due, blocked.until)
    return due

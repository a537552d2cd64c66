"""Attends one run of one container: sees it begin and end, and asks its probes in between."""

import asyncio

from serving import clock
from serving.embedded.node import probing, stopping
from serving.embedded.node.pod_state import PodState
from serving.embedded.node.records import RunDirectory
from serving.embedded.workloads import pod_probes
from serving.embedded.workloads.pod_probes import Probe, Verdict


def follow(pod: PodState, run: RunDirectory, handle: int | None = None) -> None:
    """Attend a run in tasks of the Pod; `handle` is the pidfd of a recorder that was started just now."""
    pod.spawn(_watch(pod, run, handle))
    for probe in pod_probes.parse(pod.specs[run.container]):
        pod.spawn(_probe(pod, run, probe))


async def _watch(pod: PodState, run: RunDirectory, handle: int | None) -> None:
    """Keep `run` of the container true until it has ended."""
    name = run.container
    watching = asyncio.ensure_future(stopping.ended(run, handle))
    try:
        while not watching.done() and run.identities() is None:
            await asyncio.wait({watching}, timeout=stopping.POLL_SECONDS)
        if not watching.done():
            _running(pod, name, run)
        begun = await watching
    finally:
        watching.cancel()
    container = pod.containers[name]
    if not begun:
        pod.update(name, run=container.before, before=None)
        return
    await asyncio.to_thread(pod.node.cgroups.remove, pod.uid, name)
    ended = run.read()
    pod.update(name, run=ended, started=False, ready=False)
    if ended.exit is not None and ended.exit.code != 0:
        told = ended.exit.message or f"exit code {ended.exit.code}"
        pod.event(ended.exit.reason, f"container {name}: {told}", warning=True)


def _running(pod: PodState, name: str, run: RunDirectory) -> None:
    container = pod.containers[name]
    fresh = container.run is None or container.run.started_at is None
    kinds_of = {probe.kind for probe in pod_probes.parse(pod.specs[name])}
    started = container.started or "startup" not in kinds_of
    ready = container.ready or (started and "readiness" not in kinds_of)
    pod.update(name, run=run.read(), started=started, ready=ready)
    if fresh:
        pod.event("Started", f"started container {name} at {pod.address}")


async def _probe(pod: PodState, run: RunDirectory, probe: Probe) -> None:
    name = run.container
    while (
        not (container := pod.containers[name]).running
        or container.run is None
        or not (container.run.started_at and (container.started or probe.kind == "startup"))
    ):
        if run.exit() is not None or pod.terminating:
            return
        await asyncio.sleep(pod_probes.FIRST_PERIOD / 4)
    known = {"startup": container.started, "readiness": container.ready}.get(probe.kind, False)
    verdict = Verdict(ok=known or None, proven=known)
    if probe.kind == "startup" and container.started:
        return
    passed = (clock.now() - container.run.started_at).total_seconds()
    await asyncio.sleep(max(probe.initial_delay - passed, 0))
    while pod.running(run) and name not in pod.stopping and not pod.terminating:
        found = run.identities()
        if found is None:
            return
        problem = await probing.ask(pod.target(name, found[1].pid), probe.action, probe.timeout)
        if not pod.running(run):
            return
        before, verdict = verdict, pod_probes.judge(probe, verdict, not problem, clock.monotonic())
        if _judged(pod, run, probe, (before, verdict), problem):
            return
        await asyncio.sleep(pod_probes.next_delay(probe, verdict))


def _judged(
    pod: PodState, run: RunDirectory, probe: Probe, verdicts: tuple[Verdict, Verdict], problem: str
) -> bool:
    """Act on what a probe has found; returns whether it need not be asked again."""
    name = run.container
    before, verdict = verdicts
    if verdict.ok is not before.ok:
        if probe.kind == "readiness":
            pod.update(name, ready=verdict.ok is True)
        elif probe.kind == "startup" and verdict.ok:
            has_readiness = any(p.kind == "readiness" for p in pod_probes.parse(pod.specs[name]))
            pod.update(name, started=True, ready=not has_readiness)
        if verdict.ok is False:
            pod.event("Unhealthy", f"{probe.kind} probe of {name} failed: {problem}", warning=True)
            if probe.kind != "readiness":
                pod.spawn(_kill(pod, run, f"container {name} failed its {probe.kind} probe"))
                return True
    return probe.kind == "startup" and verdict.ok is True


async def _kill(pod: PodState, run: RunDirectory, why: str) -> None:
    pod.event("Killing", why)
    pod.stopping.add(run.container)
    try:
        await stopping.stop([run], pod.grace())
    finally:
        pod.stopping.discard(run.container)

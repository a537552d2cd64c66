"""Attends one run of one container: sees it begin and end, and asks its probes in between."""

import asyncio
import contextlib

from serving import clock
from serving.embedded.kubelet.container import stopping
from serving.embedded.kubelet.container.launch import Started
from serving.embedded.kubelet.pod import probe_client, probes
from serving.embedded.kubelet.pod.probe_client import Answer
from serving.embedded.kubelet.pod.probes import Probe, Verdict
from serving.embedded.kubelet.pod.state import PodState
from serving.embedded.kubelet.records import RunDirectory


def follow(pod: PodState, run: RunDirectory, started: Started | None = None) -> None:
    """Attend a run in tasks of the Pod; `started` is its recorder, where that was started just now."""
    pod.spawn(_watch(pod, run, started))
    for probe in probes.parse(pod.specs[run.container]):
        pod.spawn(_probe(pod, run, probe))


async def _watch(pod: PodState, run: RunDirectory, started: Started | None) -> None:
    """Keep `run` of the container true until it has ended."""
    name = run.container
    if started is not None:
        await _recorded(started)
    watching = asyncio.ensure_future(stopping.ended(run, started.handle if started else None))
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


async def _recorded(started: Started) -> None:
    """Wait until the recorder has recorded the start, or has ended."""
    with started.connection as connection:
        connection.setblocking(False)  # noqa: FBT003 as sockets have it
        with contextlib.suppress(OSError):
            await asyncio.get_running_loop().sock_recv(connection, 1)


def _running(pod: PodState, name: str, run: RunDirectory) -> None:
    container = pod.containers[name]
    fresh = container.run is None or container.run.started_at is None
    kinds_of = {probe.kind for probe in probes.parse(pod.specs[name])}
    started = container.started or "startup" not in kinds_of
    ready = container.ready or (started and "readiness" not in kinds_of)
    pod.update(name, run=run.read(), started=started, ready=ready)
    if fresh:
        pod.event("Started", f"started container {name} at {pod.address}")


async def _probe(pod: PodState, run: RunDirectory, probe: Probe) -> None:
    name = run.container

    def due() -> bool:
        container = pod.containers[name]
        begun = pod.running(run) and container.run is not None and container.run.started_at is not None
        return begun and (container.started or probe.kind == "startup")

    await pod.until(lambda: due() or not pod.running(run))
    container = pod.containers[name]
    if not due() or container.run is None or container.run.started_at is None:
        return
    begun = container.run.started_at
    known = {"startup": container.started, "readiness": container.ready}.get(probe.kind, False)
    verdict = Verdict(ok=known or None, proven=known)
    if probe.kind == "startup" and container.started:
        return
    await asyncio.sleep(max(probe.initial_delay - (clock.now() - begun).total_seconds(), 0))
    while pod.running(run) and name not in pod.stopping and not pod.terminating:
        found = run.identities()
        if found is None:
            return
        answer = await probe_client.ask(pod.target(name, found[1].pid), probe.action, probe.timeout)
        if not pod.running(run):
            return
        before, verdict = verdict, probes.judge(probe, verdict, not answer.problem, clock.monotonic())
        if _judged(pod, run, probe, (before, verdict), answer):
            return
        passed = (clock.now() - begun).total_seconds()
        await asyncio.sleep(probes.next_delay(probe, verdict, passed))


def _judged(
    pod: PodState, run: RunDirectory, probe: Probe, verdicts: tuple[Verdict, Verdict], answer: Answer
) -> bool:
    """Act on what a probe has found; returns whether it need not be asked again."""
    name = run.container
    before, verdict = verdicts
    if verdict.ok is not before.ok:
        if probe.kind == "readiness":
            if verdict.ok:
                pod.begun_serving(run, answer.headers)
            pod.update(name, ready=verdict.ok is True)
        elif probe.kind == "startup" and verdict.ok:
            has_readiness = any(p.kind == "readiness" for p in probes.parse(pod.specs[name]))
            pod.update(name, started=True, ready=not has_readiness)
        if verdict.ok is False:
            pod.event("Unhealthy", f"{probe.kind} probe of {name} failed: {answer.problem}", warning=True)
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

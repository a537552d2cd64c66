"""The end of a Pod: it leaves the EndpointSlices, drains, is stopped, and is forgotten, here and in the API."""

import asyncio
import contextlib
import logging

from serving import errors
from serving.embedded.kubelet.container import stopping
from serving.embedded.kubelet.pod import lifecycle, probe_client, status
from serving.embedded.kubelet.pod.state import PodState
from serving.resources import kinds

log = logging.getLogger(__name__)


async def terminate(pod: PodState) -> None:
    """Drain, preStop, SIGTERM, grace, SIGKILL; returns when the API has the Pod no more, or need not be asked."""
    served = status.ready(pod.part("containers"), terminating=False) and any(
        c.get("ports") for c in pod.specs.values()
    )
    pod.terminating = True
    pod.report(lifecycle.Steps())
    if not pod.gone.is_set() and any(c.running for c in pod.containers.values()):
        pod.event("Killing", "stopping the Pod")
        if served:
            await pod.pause(pod.node.settings.drain_seconds)
        hooks = [_pre_stop(pod, name) for name, c in pod.containers.items() if c.running]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pod.grace() or None):
                await asyncio.gather(*hooks)
    grace = 0.0 if pod.gone.is_set() else pod.grace()
    await stopping.remove(pod.directory, pod.node.cgroups, grace, pod.gone)
    pod.node.addresses.release(pod.address)
    if any("image" in volume for volume in pod.object["spec"].get("volumes") or []):
        await pod.node.images.release(pod.uid)
    await _finalize(pod)


async def _pre_stop(pod: PodState, name: str) -> None:
    action = (pod.specs[name].get("lifecycle") or {}).get("preStop") or {}
    if "sleep" in action:
        await pod.pause(float(action["sleep"].get("seconds") or 0))
    elif action:
        run = pod.containers[name].run
        found = pod.directory.run(name, run.index).identities() if run else None
        if found:
            answer = await probe_client.ask(pod.target(name, found[1].pid), action, pod.grace())
            if answer.problem:
                pod.event("FailedPreStopHook", f"container {name}: {answer.problem}", warning=True)


async def _finalize(pod: PodState) -> None:
    meta = pod.object["metadata"]
    delay = 0.1
    while not pod.gone.is_set():
        try:
            await pod.node.kube.delete(
                kinds.POD, meta["namespace"], meta["name"], uid=pod.uid, grace_seconds=0
            )
        except (errors.Unavailable, errors.ApiError) as error:
            log.info("pod %s/%s cannot be finalized yet: %s", meta["namespace"], meta["name"], error)
            await pod.pause(delay)
            delay = min(delay * 2, 5.0)
        else:
            return

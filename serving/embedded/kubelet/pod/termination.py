"""Steps of a Pod's end: the pause before it, a container's preStop hook, and the deletion from the API."""

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from typing import Any

from serving import errors
from serving.embedded.kubelet.container.exec_command import RunningContainer
from serving.embedded.kubelet.pod import probe_client
from serving.kube import Kube
from serving.objects import Object
from serving.resources import kinds

log = logging.getLogger(__name__)

FIRST_RETRY_SECONDS = 0.1
RETRY_CAP_SECONDS = 5.0
LEAST_GRACE_SECONDS = 2.0
"""Shortest time from SIGTERM to SIGKILL after a preStop hook, even if the hook took the whole grace period,
as at the kubelet."""


async def pause(seconds: float, end: asyncio.Event) -> None:
    """Wait, at most until `end` is set."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await end.wait()


async def run_pre_stop(
    hook: Mapping[str, Any], target: RunningContainer | None, grace_seconds: float, hurry: asyncio.Event
) -> str | None:
    """Run a container's preStop hook; return its failure, or None.

    Args:
        hook: `lifecycle.preStop` of the container; empty if it has none.
        target: the container; None if its process is not known: then only `sleep` can run.
        grace_seconds: the longest that the hook may take.
        hurry: set when the grace period is over.
    """
    if "sleep" in hook:
        await pause(min(float(hook["sleep"].get("seconds") or 0), grace_seconds), hurry)
    elif hook and target is not None:
        return (await probe_client.send(target, hook, grace_seconds)).problem
    return None


async def delete_from_api(kube: Kube, pod: Object, gone: asyncio.Event) -> None:
    """Delete the Pod, whose processes have ended, from the API; retry until the API accepts that."""
    meta = pod["metadata"]
    delay = FIRST_RETRY_SECONDS
    while not gone.is_set():
        try:
            await kube.delete(kinds.POD, meta["namespace"], meta["name"], uid=meta["uid"], grace_seconds=0)
        except (errors.Unavailable, errors.ApiError) as error:
            log.info("pod %s/%s cannot be finalized yet: %s", meta["namespace"], meta["name"], error)
            await pause(delay, gone)
            delay = min(delay * 2, RETRY_CAP_SECONDS)
        else:
            return

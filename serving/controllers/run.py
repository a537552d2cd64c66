"""Runs the controllers in one process: they share the watches, and are stopped together."""

import asyncio
import socket
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from functools import partial
from typing import Protocol

from serving import engines, job_kinds
from serving.controllers.gone_gateways import GoneGateways
from serving.controllers.inference import OPTIONAL_CHILDREN, InferenceController
from serving.controllers.models.handoff import HandoffController
from serving.controllers.models.model import ModelController
from serving.controllers.models.modelversion import ModelVersionController
from serving.controllers.models.training_jobs import TrainingJobs
from serving.data_dir import DataDir
from serving.kube import Watches, connect_eventually, serves
from serving.kube.election import LeaderElection
from serving.settings import ControllerSettings, Settings
from serving.system.files import open_files
from serving.system.readiness import Readiness


class Controller(Protocol):
    """Reconciles one kind."""

    async def run(self) -> None:
        """Reconcile until cancelled."""


Prepare = Callable[[DataDir, ControllerSettings, Watches], AbstractAsyncContextManager[Controller]]
"""Connects a controller of another package to the API, and registers the objects that it watches."""


LEASE = "slipway-controllers"
"""Name of the leader election's Lease, whose holder runs the controllers."""


async def run(data_dir: DataDir, settings: Settings, readiness: Readiness, *others: Prepare) -> None:
    """Run these controllers and `others` until cancelled; the API may be unavailable at any time.

    The process is ready once all watches have listed their objects. A process that waits for the leader's end
    is ready too: otherwise a rolling update, which waits for the new Pod before it ends the old one, would
    not end.

    Raises:
        errors.LeadershipLost: another process runs the controllers from now on.
    """
    open_files.set_limit()  # the autoscaler reads the pages of all replicas at once
    work = partial(_work, data_dir, settings, readiness, *others)
    if not settings.controllers.leader_election:
        await work()
        return
    async with await connect_eventually(data_dir.kubeconfig, component="controllers") as kube:
        namespace = settings.controllers.lease_namespace
        election = LeaderElection(kube, namespace, LEASE, socket.gethostname())
        await election.run(work, on_waiting=lambda: readiness.follow(_no_obstacle))


async def _work(data_dir: DataDir, settings: Settings, readiness: Readiness, *others: Prepare) -> None:
    config = settings.controllers
    async with AsyncExitStack() as stack:
        # One client for each: its component is its field manager, which names the writer of each field.
        clients = {
            name: await stack.enter_async_context(
                await connect_eventually(data_dir.kubeconfig, component=name)
            )
            for name in ("inference", "model", "modelversion", "hand-off")
        }
        served = [kind for kind in OPTIONAL_CHILDREN if await serves(clients["inference"], kind)]
        watches = Watches(clients["inference"], config.watch_namespace)
        jobs = TrainingJobs(watches, job_kinds.known(data_dir.job_kinds))
        controllers: list[Controller] = [
            InferenceController(
                clients["inference"],
                config,
                watches,
                engines.known(data_dir.engines),
                images=settings.runtime_images,
                served=served,
                volume=settings.models.volume,
            ),
            ModelController(clients["model"], config, watches),
            ModelVersionController(clients["modelversion"], settings, data_dir, watches, jobs),
            HandoffController(clients["hand-off"], config, watches, jobs),
            GoneGateways(clients["inference"], config, watches),
        ]
        controllers += [
            await stack.enter_async_context(prepare(data_dir, config, watches)) for prepare in others
        ]
        readiness.follow(lambda: _obstacle(watches))
        async with asyncio.TaskGroup() as group:
            for controller in controllers:
                group.create_task(controller.run())
            group.create_task(watches.run())


def _no_obstacle() -> str:
    return ""


def _obstacle(watches: Watches) -> str:
    """Return why the process is not ready; empty if it is."""
    unsynced = watches.unsynced()
    return f"not listed yet: {', '.join(unsynced)}" if unsynced else ""

"""The process that runs serving's controllers: one client each, shared watches, stopped together."""

import asyncio
import socket
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from functools import partial
from typing import Protocol

from serving import engines
from serving.controllers.handoff import HandoffController
from serving.controllers.inference import InferenceController
from serving.controllers.model import ModelController
from serving.controllers.modelversion import ModelVersionController
from serving.data_dir import DataDir
from serving.kube import Watches, connect_eventually
from serving.kube.election import LeaderElection
from serving.settings import ControllerSettings, Settings


class Controller(Protocol):
    """Reconciles one kind."""

    async def run(self) -> None:
        """Reconcile until cancelled."""


Prepare = Callable[[DataDir, ControllerSettings, Watches], AbstractAsyncContextManager[Controller]]
"""Connects a controller of another package and registers its watches."""


LEASE = "slipway-controllers"
"""Name of the Lease of the controllers that work."""


async def run(data_dir: DataDir, settings: Settings, *others: Prepare) -> None:
    """Run these controllers and `others` until cancelled; the API may be unavailable at any time.

    Raises:
        errors.LeadershipLost: another process works from now on.
    """
    work = partial(_work, data_dir, settings, *others)
    if not settings.controllers.leader_election:
        await work()
        return
    async with await connect_eventually(data_dir.kubeconfig, component="controllers") as kube:
        namespace = settings.controllers.lease_namespace
        await LeaderElection(kube, namespace, LEASE, socket.gethostname()).run(work)


async def _work(data_dir: DataDir, settings: Settings, *others: Prepare) -> None:
    config = settings.controllers
    async with AsyncExitStack() as stack:
        clients = {
            name: await stack.enter_async_context(
                await connect_eventually(data_dir.kubeconfig, component=name)
            )
            for name in ("inference", "model", "modelversion", "hand-off")
        }
        watches = Watches(clients["inference"])
        controllers: list[Controller] = [
            InferenceController(
                clients["inference"],
                config,
                watches,
                engines.known(data_dir.engines),
                settings.runtime_images,
            ),
            ModelController(clients["model"], config, watches),
            ModelVersionController(clients["modelversion"], settings, data_dir, watches),
            HandoffController(clients["hand-off"], config, watches),
        ]
        controllers += [
            await stack.enter_async_context(prepare(data_dir, config, watches)) for prepare in others
        ]
        async with asyncio.TaskGroup() as group:
            for controller in controllers:
                group.create_task(controller.run())
            group.create_task(watches.run())

"""The process that runs serving's controllers: one client each, shared watches, stopped together."""

import asyncio
from contextlib import AsyncExitStack

from serving.controllers.handoff import HandoffController
from serving.controllers.inference import InferenceController
from serving.controllers.model import ModelController
from serving.controllers.modelversion import ModelVersionController
from serving.controllers.prober import Prober
from serving.kube import Informer, connect_eventually
from serving.resources import kinds
from serving.settings import DataDir, Settings


async def run(data_dir: DataDir, settings: Settings) -> None:
    """Run until cancelled; the API may come, go and come back."""
    config = settings.controllers
    async with AsyncExitStack() as stack:
        clients = {
            name: await stack.enter_async_context(
                await connect_eventually(data_dir.kubeconfig, component=name)
            )
            for name in ("inference", "model", "modelversion", "hand-off")
        }
        versions = Informer(clients["modelversion"], kinds.MODEL_VERSION)
        jobs = Informer(clients["hand-off"], kinds.JOB)
        prober = Prober(data_dir.probe_socket, config.probe_timeout_seconds)
        stack.push_async_callback(prober.close)
        inference = InferenceController(clients["inference"], config, prober, versions)
        model = ModelController(clients["model"], config, versions)
        built = ModelVersionController(clients["modelversion"], config, data_dir, versions, jobs)
        handoff = HandoffController(clients["hand-off"], config, versions, jobs)
        async with asyncio.TaskGroup() as group:
            for controller in (inference, model, built, handoff):
                group.create_task(controller.run())
            for informer in (versions, jobs, *inference.informers, *model.informers):
                group.create_task(informer.run())

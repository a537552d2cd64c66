"""Autoscalers whose target cannot be sized, with the in-memory API."""

import asyncio

from autoscaler.controller import AutoscalerController
from serving.kube import Watches
from serving.resources import kinds
from serving.resources.kubernetes import conditions
from serving.settings import ControllerSettings
from tests.fakes.kube import FakeKube
from tests.objects.deployments import deployment
from tests.rig.control_plane.convergence import until


async def test_no_count_is_on_the_metrics_page_when_the_target_is_deleted() -> None:
    api = FakeKube()
    api.add(kinds.DEPLOYMENT, deployment("d", 2, status={"replicas": 2, "readyReplicas": 2}))
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}
    spec = {"scaleTargetRef": target, "minReplicas": 1, "maxReplicas": 3}
    api.add(kinds.AUTOSCALER, {"metadata": {"name": "a", "namespace": "default"}, "spec": spec})
    kube = api.client("autoscaler")
    watches = Watches(kube)
    controller = AutoscalerController(kube, ControllerSettings(), watches)

    def is_refused() -> bool:
        status = api.find(kinds.AUTOSCALER)[0].get("status") or {}
        ready = conditions.find(status.get("conditions"), "Ready") or {}
        return ready.get("reason") == "TargetNotFound"

    running = asyncio.gather(controller.run(), watches.run())
    try:
        while "slipway_autoscaler_desired_replicas{" not in await controller.metrics_page():
            await asyncio.sleep(0.01)
        api.remove(kinds.DEPLOYMENT, "default", "d")
        await until(is_refused, "the refusal")
        assert "slipway_autoscaler_desired_replicas{" not in await controller.metrics_page()
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

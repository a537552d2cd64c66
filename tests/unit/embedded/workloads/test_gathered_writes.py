"""Deployment statuses and EndpointSlices of Pods that start, against an API in memory: only lasting states
are written.
"""

import asyncio
import dataclasses
from contextlib import AbstractAsyncContextManager

import pytest

from serving.embedded.workloads.endpoint_slice import controller as endpoint_slice
from serving.objects import Object
from serving.resources import kinds
from serving.settings import ControllerSettings, Settings
from tests.fakes.kube import FakeKube
from tests.rig.control_plane.convergence import running, until
from tests.rig.control_plane.workload_controllers import workloads

NEVER = 3600.0
PATIENT = Settings(controllers=ControllerSettings(status_settle_seconds=NEVER))
QUICK = Settings(controllers=dataclasses.replace(PATIENT.controllers, status_settle_seconds=0.01))
STATUS = "apply deployments/web/status"
DEPLOYMENT = {
    "metadata": {"name": "web", "namespace": "default"},
    "spec": {
        "replicas": 1,
        "selector": {"matchLabels": {"app": "web"}},
        "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "c", "image": "i"}]},
        },
    },
}


def service(name: str) -> Object:
    return {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"selector": {"app": name}, "ports": [{"port": 80, "targetPort": 8080}]},
    }


def pod(app: str, ready: str) -> Object:
    return {
        "metadata": {"name": app, "namespace": "default", "labels": {"app": app}},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
        "status": running_status(ready),
    }


def running_status(ready: str) -> Object:
    condition = {"type": "Ready", "status": ready, "lastTransitionTime": "2026-01-01T00:00:00Z"}
    return {"phase": "Running", "podIP": "127.77.0.2", "conditions": [condition]}


def controlled(api: FakeKube, settings: Settings) -> AbstractAsyncContextManager[list[asyncio.Task[None]]]:
    return running(workloads(api.client("node"), settings))


def set_ready(api: FakeKube, ready: str) -> None:
    [stored] = api.find(kinds.POD)
    api.change(kinds.POD, "default", stored["metadata"]["name"], {"status": running_status(ready)})


def status(api: FakeKube) -> Object:
    [web] = api.find(kinds.DEPLOYMENT)
    return dict(web.get("status") or {})


async def test_deployment_has_one_status_write_when_its_pod_is_ready_soon() -> None:
    api = FakeKube()
    async with controlled(api, PATIENT):
        api.add(kinds.DEPLOYMENT, DEPLOYMENT)
        await until(lambda: len(api.find(kinds.POD)) == 1)
        set_ready(api, "False")
        await until(lambda: bool(api.find(kinds.EVENT_V1)))  # the reconcile that created the Pod is over
        set_ready(api, "True")
        await until(lambda: status(api).get("availableReplicas") == 1)
        assert api.writes.count(STATUS) == 1


async def test_deployment_status_is_written_when_its_pod_starts_slowly() -> None:
    api = FakeKube()
    async with controlled(api, QUICK):
        api.add(kinds.DEPLOYMENT, DEPLOYMENT)
        await until(lambda: status(api).get("unavailableReplicas") == 1)


async def test_deployment_status_is_written_at_once_when_its_pod_fails() -> None:
    api = FakeKube()
    async with controlled(api, PATIENT):
        api.add(kinds.DEPLOYMENT, DEPLOYMENT)
        await until(lambda: len(api.find(kinds.POD)) == 1)
        set_ready(api, "True")
        await until(lambda: status(api).get("availableReplicas") == 1)
        set_ready(api, "False")
        await until(lambda: status(api).get("availableReplicas") == 0)


async def test_service_has_one_slice_write_when_its_first_pod_is_ready_soon(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(endpoint_slice, "PLACEHOLDER_SECONDS", NEVER)
    monkeypatch.setattr(endpoint_slice, "GATHER_SECONDS", 0.0)
    api = FakeKube()
    async with controlled(api, PATIENT):
        api.add(kinds.SERVICE, service("web"))
        api.add(kinds.POD, pod("other", "True"))
        api.add(kinds.SERVICE, service("other"))
        await until(lambda: bool(api.find(kinds.ENDPOINT_SLICE)))  # `web` was reconciled before `other`
        api.add(kinds.POD, pod("web", "True"))
        await until(lambda: len(api.find(kinds.ENDPOINT_SLICE)) == 2)
        assert [write for write in api.writes if "/web-" in write] == ["apply endpointslices/web-local"]


async def test_service_has_an_empty_slice_when_it_has_no_pod_for_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(endpoint_slice, "PLACEHOLDER_SECONDS", 0.01)
    api = FakeKube()
    async with controlled(api, PATIENT):
        api.add(kinds.SERVICE, service("web"))
        await until(lambda: [s["endpoints"] for s in api.find(kinds.ENDPOINT_SLICE)] == [[]])

"""What the components report without a right, as docs/cluster.md lists it (`Needs of the components`)."""

import copy
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from serving.kube import Kube
from serving.objects import Object
from serving.resources import kinds
from serving.resources.kinds import Kind
from serving.resources.kubernetes import conditions
from tests.objects import rights_stories as stories
from tests.objects import training_jobs
from tests.objects.contract_objects import eventually
from tests.objects.training_jobs import JOB_SET, RAY_JOB, served
from tests.rig.control_plane import discovery
from tests.rig.control_plane.component_processes import CONTROLLERS, GATEWAY, ComponentProcess, Installation
from tests.rig.control_plane.job_definitions import defined, until_held
from tests.rig.control_plane.recorded_requests import RecordingProxy
from tests.rig.machine.addresses import own
from tests.rig.machine.ports import free_port

pytestmark = [
    pytest.mark.server_only("RBAC is a cluster's"),
    pytest.mark.skipif("SLIPWAY_CONTRACT_KUBECONFIG" not in os.environ, reason="RBAC is a cluster's"),
    pytest.mark.timeout(300),
]

PROXY = own(113)
STATEFUL_SET = Kind("apps", "v1", "StatefulSet", "statefulsets")
REPORT_SECONDS = 90.0
"""Longest time from a component's start to its report; its imports take seconds on a loaded machine."""


@pytest.fixture
async def accounts(
    kube: Kube, namespace: str, contract_kubeconfig: Path, tmp_path: Path
) -> AsyncIterator[Installation]:
    async with RecordingProxy(contract_kubeconfig, PROXY) as proxy:
        yield Installation(kube, namespace, proxy, tmp_path)


async def take_away(kube: Kube, objects: list[Object], kind: str, account: str, resource: str) -> None:
    """Remove a resource from the rules of an account's Role or ClusterRole."""
    (role,) = (
        copy.deepcopy(obj)
        for obj in objects
        if obj["kind"] == kind and obj["metadata"]["name"].removesuffix(f"-{_namespace(objects)}") == account
    )
    assert any(resource in rule["resources"] for rule in role["rules"])
    for rule in role["rules"]:
        rule["resources"] = [name for name in rule["resources"] if name != resource]
    role["rules"] = [rule for rule in role["rules"] if rule["resources"]]
    await kube.apply(await discovery.kind_of(kube, role), role)


def _namespace(objects: list[Object]) -> str:
    return next(str(obj["metadata"]["name"]) for obj in objects if obj["kind"] == "Namespace")


async def until_not_ready(component: ComponentProcess, reason: str) -> None:
    async def reports() -> bool:
        status, text = await component.readiness()
        return status == 503 and reason in text

    await eventually(reports, REPORT_SECONDS)


async def test_controllers_name_the_kind_that_they_may_not_list(
    kube: Kube, accounts: Installation, installed: list[Object]
) -> None:
    await take_away(kube, installed, "ClusterRole", CONTROLLERS, "jobs")
    async with accounts.component("controllers", CONTROLLERS, {}) as controllers:
        await until_not_ready(controllers, "not listed yet: jobs")
        assert 'cannot list resource "jobs"' in controllers.log()


async def test_jobs_of_other_kinds_are_handed_off_without_the_rights_for_one_kind(
    kube: Kube, accounts: Installation, installed: list[Object], team: str
) -> None:
    await take_away(kube, installed, "ClusterRole", CONTROLLERS, "rayjobs")
    async with defined(kube, RAY_JOB, JOB_SET):
        for row in (RAY_JOB, JOB_SET):
            await kube.create(served(row), training_jobs.job(row, "train", namespace=team))
        source = {"apiVersion": "ray.io/v1", "kind": "RayJob", "name": "train"}
        spec = {"modelName": "digits", "source": {"job": source}}
        await kube.create(kinds.MODEL_VERSION, {"metadata": {"name": "v1", "namespace": team}, "spec": spec})

        async def says_why() -> bool:
            stored = await kube.get(kinds.MODEL_VERSION, team, "v1")
            ready = conditions.find((stored.get("status") or {}).get("conditions"), "Ready") or {}
            refusal = 'cannot list resource "rayjobs" in API group "ray.io"'
            return ready.get("reason") == "JobKindUnavailable" and refusal in ready["message"]

        async with accounts.component("controllers", CONTROLLERS, {}) as controllers:
            await until_held(kube, served(JOB_SET), team, "train", held=True)
            await eventually(says_why, REPORT_SECONDS)
            assert controllers.log().count('cannot list resource "rayjobs"') == 1
            await until_held(kube, served(RAY_JOB), team, "train", held=False)


async def test_no_controllers_lead_without_their_right_to_the_lease(
    kube: Kube, accounts: Installation, installed: list[Object]
) -> None:
    await take_away(kube, installed, "Role", CONTROLLERS, "leases")
    elected = {"CONTROLLERS__LEADER_ELECTION": "true"}
    async with accounts.component("controllers", CONTROLLERS, elected) as controllers:

        async def is_refused_twice() -> bool:
            return controllers.log().count("cannot be acquired: leases.coordination.k8s.io") > 1

        await eventually(is_refused_twice, REPORT_SECONDS)
        assert {request.resource for request in accounts.proxy.requests} == {"leases"}


async def test_gateway_is_not_ready_without_the_right_to_routes(
    kube: Kube, accounts: Installation, installed: list[Object]
) -> None:
    await take_away(kube, installed, "ClusterRole", GATEWAY, "routes")
    settings = {"GATEWAY__PORT": free_port(), "GATEWAY__LEAVE_SECONDS": 0, "GATEWAY__DRAIN_SECONDS": 1}
    async with accounts.component("gateway", GATEWAY, settings) as gateway:
        await until_not_ready(gateway, "Routes and EndpointSlices are not listed yet")


async def test_a_refused_scale_or_secret_is_the_reason_in_the_status(
    kube: Kube, accounts: Installation, installed: list[Object], team: str, tmp_path: Path
) -> None:
    await take_away(kube, installed, "ClusterRole", CONTROLLERS, "statefulsets/scale")
    await kube.create(STATEFUL_SET, stories.stateful_set(team, "database", "nobody"))
    await kube.create(kinds.AUTOSCALER, stories.autoscaler(team, "StatefulSet", "database", 2))
    private = {"registry": {"repository": "registry.invalid/private", "secretName": "login"}}
    await kube.create(kinds.MODEL, stories.model(team, "private", **private))
    await kube.create(kinds.MODEL_VERSION, stories.version(team, "private-1", "private", tmp_path))

    async def ready(kind: Kind, name: str) -> Object:
        obj = await kube.get(kind, team, name)
        return conditions.find((obj.get("status") or {}).get("conditions"), "Ready") or {}

    async def are_reported() -> bool:
        scaler, version = (
            await ready(kinds.AUTOSCALER, "database"),
            await ready(kinds.MODEL_VERSION, "private-1"),
        )
        return (
            "statefulsets/scale" in scaler.get("message", "") and version.get("reason") == "SecretForbidden"
        )

    async with accounts.component("controllers", CONTROLLERS, {}):
        await eventually(are_reported, REPORT_SECONDS)

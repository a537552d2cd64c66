"""Every right of the installation's accounts is used, and no other one is asked for.

The components work as processes beside the cluster, each with the token of its account; a proxy records their
requests. Nodes, images and registries are not needed.
"""

import asyncio
import contextlib
import ipaddress
import os
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest

from serving import job_kinds
from serving.kube import Kube
from serving.kube.cache import controlling_owner_uids
from serving.objects import Object
from serving.resources import kinds, names
from serving.resources.kinds import Kind
from serving.resources.kubernetes.patch_types import JSON_PATCH
from tests.objects import rights_stories as stories
from tests.objects import training_jobs
from tests.objects.contract_objects import eventually, gone
from tests.objects.training_jobs import served
from tests.rig.control_plane.component_processes import CONTROLLERS, GATEWAY, Installation
from tests.rig.control_plane.granted_rights import Right, granted
from tests.rig.control_plane.job_definitions import defined, end, until_held
from tests.rig.control_plane.kubectl import KUBECTL
from tests.rig.control_plane.played_node import played_node
from tests.rig.control_plane.recorded_requests import RecordedRequest, RecordingProxy, source_address
from tests.rig.machine.addresses import own
from tests.rig.machine.ports import free_port
from tests.rig.servers.gateway import backend

pytestmark = [
    pytest.mark.server_only("RBAC is a cluster's"),
    pytest.mark.skipif("SLIPWAY_CONTRACT_KUBECONFIG" not in os.environ, reason="RBAC is a cluster's"),
    pytest.mark.timeout(300),
]

ADDRESS = own(112)
"""Of the proxy, and of Pods, which the Trial's load generator asks on port 8080."""
STATEFUL_SET = Kind("apps", "v1", "StatefulSet", "statefulsets")
CHILDREN = (
    kinds.RESOURCE_CLAIM_TEMPLATE,
    kinds.DEPLOYMENT,
    kinds.SERVICE,
    kinds.AUTOSCALER,
    kinds.ROUTE,
    kinds.POD_DISRUPTION_BUDGET,
    kinds.DAEMON_SET,
)
"""Kinds of an Inference's children."""
CONTROLLER_SETTINGS: dict[str, object] = {
    "CONTROLLERS__LEADER_ELECTION": "true",
    "CONTROLLERS__BACKOFF_CAP_SECONDS": 1,
    "CONTROLLERS__GONE_GATEWAY_SECONDS": 1,
    # DaemonSets are for image volumes (Kubernetes 1.35), and the played node names no container runtime.
    "MODELS__VOLUME": "image",
}
OPTIONAL = {
    (CONTROLLERS, "", "secrets", "get"),
    (CONTROLLERS, "", "nodes/proxy", "get"),
}
"""Asked for, and refused until an administrator binds `slipway-secrets` and `slipway-usage`."""
OTHER_JOBS = [row for row in job_kinds.shipped() if served(row) is not kinds.JOB]
STORY_SECONDS = 120.0
"""Longest time until every right is used: the search of a trial's spec starts within ten seconds on an idle
machine, and within a minute on a loaded one."""


@dataclass(frozen=True)
class Cluster:
    """The cluster as users and their Pods have it."""

    kube: Kube
    namespace: str
    """Of the users."""
    files: Path
    """Folder of trained files."""
    scheduler: str
    address: str
    """An address of this machine that EndpointSlices may have."""
    port: int
    """There, of a replica."""
    gateway_port: int
    installation: str
    """Namespace of the components."""

    async def create(self, kind: Kind, obj: Object) -> None:
        await self.kube.create(kind, obj)

    async def until(self, kind: Kind, name: str, holds: Callable[[Object], bool]) -> None:
        async def read() -> bool:
            return holds(await self.kube.get(kind, self.namespace, name))

        await eventually(read, STORY_SECONDS)


async def models(cluster: Cluster) -> None:
    """Versions are built, one of them needs a Secret, and one is retired."""
    namespace, files = cluster.namespace, cluster.files
    await cluster.create(kinds.MODEL_VERSION, stories.version(namespace, "v1", "m", files))
    private = {"registry": {"repository": "registry.invalid/private", "secretName": "login"}}
    await cluster.create(kinds.MODEL, stories.model(namespace, "private", **private))
    await cluster.create(kinds.MODEL_VERSION, stories.version(namespace, "private-1", "private", files))
    await cluster.create(kinds.MODEL, stories.model(namespace, "short", retention={"keep": 1}))
    for number in (1, 2):
        await cluster.create(
            kinds.MODEL_VERSION, stories.version(namespace, f"short-{number}", "short", files)
        )


async def hand_off(cluster: Cluster) -> None:
    """A Job ends, the Job that captures its output fails, and another one takes its place."""
    kube, namespace = cluster.kube, cluster.namespace
    registry = {"repository": "registry.invalid/trained"}
    await cluster.create(kinds.MODEL, stories.model(namespace, "trained", registry=registry))
    await cluster.create(kinds.JOB, stories.job(namespace, cluster.scheduler))
    found: list[Object] = []

    async def is_captured() -> bool:
        jobs = (await kube.list(kinds.JOB, namespace)).items
        found[:] = [job for job in jobs if job["metadata"]["name"].startswith("capture-")]
        return bool(found)

    await eventually(is_captured, STORY_SECONDS)
    name = found[0]["metadata"]["name"]
    await kube.patch(kinds.JOB, namespace, name, {"spec": {"activeDeadlineSeconds": 1}})

    async def is_replaced() -> bool:
        return await is_captured() and found[0]["metadata"]["annotations"][names.ATTEMPT_ANNOTATION] == "1"

    await eventually(is_replaced, STORY_SECONDS)


async def hand_off_of_other_kinds(cluster: Cluster) -> None:
    """Jobs of the other shipped kinds are held, and let go as they fail."""
    for row in OTHER_JOBS:
        await cluster.create(served(row), training_jobs.job(row, "other", namespace=cluster.namespace))
    for row in OTHER_JOBS:
        await until_held(cluster.kube, served(row), cluster.namespace, "other", held=True)
        await end(cluster.kube, row, cluster.namespace, "other", "Failed")
    for row in OTHER_JOBS:
        await until_held(cluster.kube, served(row), cluster.namespace, "other", held=False)


async def serving(cluster: Cluster) -> None:
    """An Inference with a share of a GPU and a DaemonSet is edited by others, orphaned, created again and
    deleted; another one's name is taken.
    """
    kube, namespace, scheduler = cluster.kube, cluster.namespace, cluster.scheduler
    gpu = {"gpu": {"memory": "1Gi", "mechanism": "dra"}}
    two = {"minReplicas": 2, "maxReplicas": 2}
    plain = stories.predictor(scheduler, autoScale=two, prefetch=True)
    shared = stories.predictor(scheduler, name="gpu", resources=gpu)
    owner = await kube.create(kinds.CONFIG_MAP, {"metadata": {"name": "owner", "namespace": namespace}})
    taken = stories.plain_route(namespace, "taken", cluster.port)
    taken["metadata"]["ownerReferences"] = [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "name": "owner",
            "uid": owner["metadata"]["uid"],
            "controller": True,
        }
    ]
    await cluster.create(kinds.ROUTE, taken)
    await cluster.create(kinds.INFERENCE, stories.inference(namespace, "taken", plain))
    await cluster.create(kinds.INFERENCE, stories.inference(namespace, "digits", plain, shared))

    async def deployments() -> list[Object]:
        labels = f"{names.INFERENCE_LABEL}=digits"
        return (await kube.list(kinds.DEPLOYMENT, namespace, labels=labels)).items

    async def are_deployed() -> bool:
        return len(await deployments()) == 2

    await eventually(are_deployed, STORY_SECONDS)
    first = (await deployments())[0]["metadata"]
    patch = [{"op": "add", "path": "/spec/template/spec/containers/0/env/-", "value": {"name": "EDIT"}}]
    await kube.patch(kinds.DEPLOYMENT, namespace, first["name"], patch, content_type=JSON_PATCH)

    def is_put_back(deployment: Object) -> bool:
        variables = deployment["spec"]["template"]["spec"]["containers"][0]["env"]
        return "EDIT" not in {variable["name"] for variable in variables}

    await cluster.until(kinds.DEPLOYMENT, first["name"], is_put_back)
    budget = {"spec": {"maxUnavailable": 2}}
    await kube.patch(kinds.POD_DISRUPTION_BUDGET, namespace, "digits-stable", budget)
    await cluster.until(
        kinds.POD_DISRUPTION_BUDGET, "digits-stable", lambda stored: stored["spec"]["maxUnavailable"] == 1
    )
    await cluster.until(kinds.INFERENCE, "digits", lambda inference: "status" in inference)
    labels = f"{names.INFERENCE_LABEL}=digits"
    assert len((await kube.list(kinds.DAEMON_SET, namespace, labels=labels)).items) == 1
    await kube.delete(kinds.INFERENCE, namespace, "digits", propagation="Orphan")
    await eventually(lambda: gone(kube, kinds.INFERENCE, namespace, "digits"), STORY_SECONDS)
    again = await kube.create(kinds.INFERENCE, stories.inference(namespace, "digits", plain, shared))

    async def are_adopted() -> bool:
        lists = [await kube.list(kind, namespace, labels=labels) for kind in CHILDREN]
        children = [child for listed in lists for child in listed.items]
        return all(again["metadata"]["uid"] in controlling_owner_uids(child) for child in children)

    # The controllers delete the children of an Inference that owns them and has a finalizer, which precedes
    # its status. Those of any other one they leave to the garbage collector.
    await eventually(are_adopted, STORY_SECONDS)
    await cluster.until(kinds.INFERENCE, "digits", lambda inference: "status" in inference)
    await kube.delete(kinds.INFERENCE, namespace, "digits")


async def scaling(cluster: Cluster) -> None:
    """Autoscalers of other people's workloads raise their counts."""
    namespace, scheduler = cluster.namespace, cluster.scheduler
    await cluster.create(kinds.DEPLOYMENT, stories.workload(namespace, "web", scheduler))
    await cluster.create(STATEFUL_SET, stories.stateful_set(namespace, "database", scheduler))
    await cluster.create(kinds.AUTOSCALER, stories.autoscaler(namespace, "Deployment", "web", 2))
    await cluster.create(kinds.AUTOSCALER, stories.autoscaler(namespace, "StatefulSet", "database", 2))


async def tuning(cluster: Cluster) -> None:
    """An experiment measures one spec, and the name of another one's Trial is taken."""
    namespace, scheduler = cluster.namespace, cluster.scheduler
    await cluster.create(kinds.CONFIG_MAP, stories.requests(namespace))
    await cluster.create(kinds.TRIAL, stories.foreign_trial(namespace, "late-1", scheduler))
    await cluster.create(kinds.PROFILING_EXPERIMENT, stories.experiment(namespace, "late", scheduler))
    await cluster.create(kinds.PROFILING_EXPERIMENT, stories.experiment(namespace, "early", scheduler))


async def traffic(cluster: Cluster) -> None:
    """A request wakes a backend at zero, and another backend loses its only replica twice."""
    kube, namespace, port = cluster.kube, cluster.namespace, cluster.port
    zero = stories.autoscaler(namespace, "Deployment", "zero-a", 0)
    await cluster.create(kinds.AUTOSCALER, zero)
    await cluster.create(kinds.ROUTE, stories.on_demand_route(namespace, "zero", port))
    await cluster.until(kinds.ROUTE, "zero", _reports(is_degraded=False))
    url = f"http://127.0.0.1:{cluster.gateway_port}/{namespace}/zero/v2/x"
    async with aiohttp.ClientSession() as session:

        async def is_held() -> bool:
            demand = ((await kube.get(kinds.AUTOSCALER, namespace, "zero-a")).get("status") or {}).get(
                "demand"
            )
            return bool(demand and demand[0]["inFlight"])

        async def status() -> int:
            async with session.get(url) as answer:
                return answer.status

        asking = asyncio.create_task(status())
        await eventually(is_held, STORY_SECONDS)
        replica = stories.replica(namespace, "zero-a", cluster.address, port, "zero-a-0")
        await cluster.create(kinds.ENDPOINT_SLICE, replica)
        assert await asking == 200
    await cluster.create(kinds.ROUTE, stories.plain_route(namespace, "flaps", port))
    replica = stories.replica(namespace, "flaps-a", cluster.address, port, "flaps-a-0")
    for _ in range(2):
        await cluster.until(kinds.ROUTE, "flaps", _reports(is_degraded=True))
        await cluster.create(kinds.ENDPOINT_SLICE, replica)
        await cluster.until(kinds.ROUTE, "flaps", _reports(is_degraded=False))
        await kube.delete(kinds.ENDPOINT_SLICE, namespace, replica["metadata"]["name"])
    await cluster.until(kinds.ROUTE, "flaps", _reports(is_degraded=True))


async def gone_gateway(cluster: Cluster) -> None:
    """A gateway that was killed has left its Lease, and an entry in a Route."""
    left = stories.plain_route(cluster.namespace, "left", cluster.port)
    await cluster.create(kinds.ROUTE, left)
    await cluster.create(kinds.LEASE, stories.expired_lease(cluster.installation, "slipway-gateway-gone"))
    entry = {"name": "gone", "acceptedGeneration": 0, "address": "", "weights": [], "message": "gone"}
    await cluster.kube.apply_status(kinds.ROUTE, left, {"gateways": [entry]}, manager="slipway-gateway-gone")

    def is_removed(route: Object) -> bool:
        gateways = (route.get("status") or {}).get("gateways") or []
        return all(gateway["name"] != "gone" for gateway in gateways)

    await cluster.until(kinds.ROUTE, "left", is_removed)


def _reports(*, is_degraded: bool) -> Callable[[Object], bool]:
    def holds(route: Object) -> bool:
        gateways = (route.get("status") or {}).get("gateways") or []
        return bool(gateways) and all(bool(gateway["message"]) == is_degraded for gateway in gateways)

    return holds


STORIES = (
    models,
    hand_off,
    hand_off_of_other_kinds,
    serving,
    scaling,
    tuning,
    traffic,
    gone_gateway,
)


async def test_the_rights_of_the_accounts_are_those_that_their_components_use(
    kube: Kube, namespace: str, installed: list[Object], team: str, contract_kubeconfig: Path, tmp_path: Path
) -> None:
    rights = list(granted(installed))
    requests = await of_stories(kube, rights, namespace, team, contract_kubeconfig, tmp_path)
    compare(rights, requests, OPTIONAL)


@pytest.mark.kubectl
@pytest.mark.skipif(KUBECTL is None, reason="kubectl is not installed: set KUBECTL or put it on PATH")
async def test_roles_in_one_namespace_are_enough_where_it_alone_is_watched(
    kube: Kube,
    namespace: str,
    installed_for_team: list[Object],
    team: str,
    contract_kubeconfig: Path,
    tmp_path: Path,
) -> None:
    rights = list(granted(installed_for_team))
    assert {right.namespace for right in rights} == {namespace, team}
    requests = await of_stories(
        kube, rights, namespace, team, contract_kubeconfig, tmp_path, CONTROLLERS__WATCH_NAMESPACE=team
    )
    compare(rights, requests, OPTIONAL | {(CONTROLLERS, "", "nodes", verb) for verb in ("get", "list")})


def compare(
    rights: list[Right], requests: set[RecordedRequest], optional: set[tuple[str, str, str, str]]
) -> None:
    """Check that each right is used, and that only the `optional` ones are asked for in vain."""
    assert len(rights) > 60
    unused = [right for right in rights if not any(map(right.covers, requests))]
    assert sorted(map(str, unused)) == []
    refused = {request for request in requests if not any(right.covers(request) for right in rights)}
    assert {(r.account, r.group, r.resource, r.verb) for r in refused} == optional
    denied = {request for request in requests if not request.is_allowed}
    assert refused <= denied
    # Admission, and not RBAC, refuses new objects in a namespace that is being deleted.
    assert {request.verb for request in denied - refused} <= {"create"}


async def of_stories(
    kube: Kube,
    rights: list[Right],
    namespace: str,
    team: str,
    kubeconfig: Path,
    folder: Path,
    **settings: object,
) -> set[RecordedRequest]:
    """Return the requests of all components during all stories, which end once every right is used."""
    address, scheduler = await source_address(kubeconfig), f"played-{namespace}"
    if ipaddress.ip_address(address).is_loopback:
        pytest.skip(f"the API server is at the loopback address {address}, which no EndpointSlice may have")
    cluster = Cluster(kube, team, folder, scheduler, address, free_port(address), free_port(), namespace)
    gateway_settings = {
        "GATEWAY__NAME": "g",
        "GATEWAY__PORT": cluster.gateway_port,
        "GATEWAY__LEAVE_SECONDS": 0,
        "GATEWAY__DRAIN_SECONDS": 1,
        **settings,
    }
    async with RecordingProxy(kubeconfig, ADDRESS) as proxy, AsyncExitStack() as stack:
        accounts = Installation(kube, namespace, proxy, folder)

        def unused() -> list[Right]:
            return [right for right in rights if not any(map(right.covers, proxy.requests))]

        async def all_but_the_end_is_used() -> bool:
            return all(right.resource == "leases" and right.verb == "delete" for right in unused())

        await stack.enter_async_context(defined(kube, *OTHER_JOBS))
        await stack.enter_async_context(played_node(kube, team, scheduler, ADDRESS))
        await stack.enter_async_context(backend(cluster.address, cluster.port))
        await stack.enter_async_context(backend(ADDRESS, 8080))
        async with (
            accounts.component("controllers", CONTROLLERS, CONTROLLER_SETTINGS | settings) as controllers,
            accounts.component("gateway", GATEWAY, gateway_settings) as gateway,
            accounts.component("activator", GATEWAY, gateway_settings, beside="gateway") as activator,
        ):
            for component in (controllers, gateway, activator):
                await component.until_ready()
            async with asyncio.TaskGroup() as users:
                for story in STORIES:
                    users.create_task(story(cluster))
            with contextlib.suppress(TimeoutError):
                await eventually(all_but_the_end_is_used, STORY_SECONDS)
        return set(proxy.requests)

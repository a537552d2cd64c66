"""Runs the controllers of Deployments, Jobs, EndpointSlices and finished Pods."""

import asyncio

from serving.embedded.event_queue import EventQueue
from serving.embedded.workloads.deployment.controller import DeploymentController
from serving.embedded.workloads.endpoint_slice.controller import SLICE_LABELS, EndpointsController
from serving.embedded.workloads.finished_pods import FinishedPodCollector
from serving.embedded.workloads.job.controller import JobController
from serving.embedded.workloads.owned_pods import OwnedPods
from serving.kube import EventRecorder, Informer, Key, Kube, Reconciler, Watches
from serving.objects import Object
from serving.resources import kinds, names
from serving.resources.kubernetes import owner_references
from serving.settings import Settings


async def run_workloads(kube: Kube, settings: Settings, watches: Watches) -> None:
    """Run the controllers and this process's watches until cancelled, also while the API is away."""
    events = EventQueue(EventRecorder(kube, "slipway-node"))
    pod_informer, deployment_informer = watches.of(kinds.POD), watches.of(kinds.DEPLOYMENT)
    owned = OwnedPods(kube, pod_informer, events)
    deployments = DeploymentController(kube, deployment_informer, owned, events, settings)
    deployment_loop = Reconciler("deployments", deployments.reconcile, settings.controllers)
    _follow(deployment_informer, pod_informer, deployment_loop, owned)
    services = watches.of(kinds.SERVICE)
    slices = watches.of(kinds.ENDPOINT_SLICE, labels=SLICE_LABELS)
    endpoints = EndpointsController(kube, services, pod_informer, slices, settings.controllers)
    job_informer = watches.of(kinds.JOB)
    jobs = JobController(kube, job_informer, owned, events, settings.node)
    job_loop = Reconciler("jobs", jobs.reconcile, settings.controllers)
    _follow(job_informer, pod_informer, job_loop, owned)
    finished = FinishedPodCollector(kube, pod_informer, settings.node.finished_pods_kept)
    async with asyncio.TaskGroup() as group:
        group.create_task(events.run())
        # A start from zero must not wait for a TLS handshake of this process with the API.
        group.create_task(kube.stay_connected(lambda: any(map(_may_be_at_zero, services))))
        group.create_task(watches.run())
        group.create_task(job_loop.run(pod_informer, job_informer))
        group.create_task(deployment_loop.run(pod_informer, deployment_informer))
        group.create_task(endpoints.loop.run(pod_informer, services, slices))
        group.create_task(finished.run())


def _may_be_at_zero(service: Object) -> bool:
    return names.ON_DEMAND_LABEL in (service["metadata"].get("labels") or {})


def _follow(owners: Informer, children: Informer, loop: Reconciler[Key], owned: OwnedPods) -> None:
    """Reconcile an owner when it or a Pod that it controls changes."""

    def owner_changed(before: Object | None, after: Object | None) -> None:
        owner = after or before
        assert owner is not None
        if before is not None and (after is None or after["metadata"]["uid"] != before["metadata"]["uid"]):
            owned.forget(before["metadata"]["uid"])
        loop.add(Key.of(owner))

    def child_changed(before: Object | None, after: Object | None) -> None:
        for pod in (before, after):
            reference = owner_references.controller_of(pod) if pod is not None else None
            if pod is not None and reference is not None and reference["kind"] == owners.kind.kind:
                loop.add(Key(pod["metadata"]["namespace"], reference["name"]))

    owners.on_change(owner_changed)
    children.on_change(child_changed)

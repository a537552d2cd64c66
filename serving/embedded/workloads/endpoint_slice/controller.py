"""Reconciles EndpointSlices: follows Services and Pods, and writes a slice when a serving Pod changes."""

from serving.embedded.workloads.endpoint_slice import plan
from serving.embedded.workloads.endpoint_slice.selection import Selection
from serving.kube import Informer, Key, Kube, Reconciler, Result, Settling
from serving.objects import Object, is_deleting
from serving.resources import kinds, names
from serving.settings import ControllerSettings

OF_SERVICE = "service"
"""Index of the informer of slices: namespace and name of the Service."""
GATHER_SECONDS = 0.5
"""Delay of changes of Pods that do not serve, so that a new Pod, its address and its readiness are one write
(k8s.io/endpointslice has endpointUpdatesBatchPeriod)."""
PLACEHOLDER_SECONDS = 2.0
"""Delay of a Service's first slice while no Pod has an address: readers take an empty slice as none, and most
Services get a Pod soon."""
SLICE_LABELS = f"{plan.MANAGED_BY_LABEL}={plan.MANAGER}"


class EndpointsController:
    """Writes the EndpointSlices of each Service; `loop` reconciles the Services.

    It must exist before its informers run. The informer `slices` has the slices with `SLICE_LABELS` only.
    """

    def __init__(
        self, kube: Kube, services: Informer, pods: Informer, slices: Informer, settings: ControllerSettings
    ) -> None:
        self._kube = kube
        self._services = services
        self._pods = pods
        self._slices = slices
        self._selection: Selection[Key] = Selection()
        self._placeholders = Settling()
        """Services whose first, empty slice waits for `PLACEHOLDER_SECONDS`."""
        self._gathering = Settling()
        """Services whose changes of Pods that do not serve wait for `GATHER_SECONDS`."""
        self.loop = Reconciler("endpoints", self.reconcile, settings)
        services.on_change(self._service_changed)
        pods.on_change(self._pod_changed)
        slices.on_change(self._slice_changed)
        slices.index(OF_SERVICE, _service_of)

    async def reconcile(self, key: Key) -> Result | None:
        """Converge the slices of one Service.

        New slices are written before old ones are deleted, so that no endpoint is missing in between.
        """
        service = self._services.get(*key)
        if service is None or is_deleting(service):
            self._end_waits(key)
            return None  # the Service owns its slices: they are deleted with it
        selected = (self._pods.items.get(pod) for pod in self._selection.selected_by(key))
        desired = plan.slices(service, [pod for pod in selected if pod is not None])
        waits: list[float] = []
        for slice_ in desired:
            stored = self._slices.get(key.namespace, slice_["metadata"]["name"])
            if plan.same(slice_, stored):
                continue
            if not plan.is_urgent(slice_, stored):
                is_placeholder = stored is None and not slice_["endpoints"]
                left = (
                    self._placeholders.seconds_left(key, PLACEHOLDER_SECONDS)
                    if is_placeholder
                    else self._gathering.seconds_left(key, GATHER_SECONDS)
                )
                if left > 0:
                    waits.append(left)
                    continue
            await self._kube.apply(kinds.ENDPOINT_SLICE, slice_)
        kept = {slice_["metadata"]["name"] for slice_ in desired}
        for slice_ in self._slices.by_index(OF_SERVICE, str(key)):
            meta = slice_["metadata"]
            if meta["name"] not in kept:
                await self._kube.delete(kinds.ENDPOINT_SLICE, key.namespace, meta["name"], uid=meta["uid"])
        if waits:
            return Result(min(waits))
        self._end_waits(key)
        return None

    def _end_waits(self, key: Key) -> None:
        self._placeholders.end(key)
        self._gathering.end(key)

    def _service_changed(self, before: Object | None, after: Object | None) -> None:
        changed = after or before
        assert changed is not None
        key = Key.of(changed)
        self._selection.set_selector(key, key.namespace, plan.selector(after) if after else {})
        self.loop.add(key)

    def _pod_changed(self, before: Object | None, after: Object | None) -> None:
        if plan.relevant(before) == plan.relevant(after):
            return
        changed = after or before
        assert changed is not None
        key = Key.of(changed)
        labels = (after["metadata"].get("labels") or {}) if after else None
        self._selection.set_labels(key, key.namespace, labels)
        for pod in (before, after):
            if pod is not None:
                pod_labels = pod["metadata"].get("labels") or {}
                for service in self._selection.selecting(key.namespace, pod_labels):
                    self.loop.add(service)

    def _slice_changed(self, before: Object | None, after: Object | None) -> None:
        for slice_ in (before, after):
            for service in _service_of(slice_) if slice_ else ():
                namespace, _, name = service.partition("/")
                self.loop.add(Key(namespace, name))


def _service_of(slice_: Object) -> list[str]:
    meta = slice_["metadata"]
    name = (meta.get("labels") or {}).get(names.SERVICE_NAME_LABEL)
    return [str(Key(meta["namespace"], name))] if name else []

"""Targets of any kind, read through their scale subresources, with their Pods."""

import asyncio
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from autoscaler.starts import Starts, is_ready
from serving import clock, errors
from serving.kube import Key, Kube
from serving.kube.connection import answers
from serving.objects import Object, is_deleting
from serving.resources import kinds
from serving.resources.formats import label_selector
from serving.resources.kinds import Kind, ScaleSubresource

READ_SECONDS = 15.0
"""Seconds between reads of targets without a watch: kinds other than Deployments, and Deployments outside an
Inference."""
DISCOVERY_SECONDS = 300.0
"""Seconds between discoveries of a missing kind, which may be installed meanwhile."""
SCALERS_SECONDS = 60.0
"""Seconds between lists of HorizontalPodAutoscalers, which write every 15 s."""
SCALERS = Kind("autoscaling", "v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers")


@dataclass(frozen=True, slots=True)
class ScaleTarget:
    """A target at the moment of a decision."""

    kind: Kind
    object: Object
    """A Deployment, or an object with the fields of `UnwatchedTarget.object`."""
    pods: list[Object]
    is_ours: bool
    """Whether it belongs to an Inference, so that gateways count its requests."""

    @property
    def name(self) -> str:
        return str(self.object["metadata"]["name"])

    @property
    def selector(self) -> str:
        """Labels of the Pods in the notation of `kubectl get -l`; empty where they are not known."""
        selector = self.object["spec"].get("selector") or ""
        return selector if isinstance(selector, str) else label_selector.text(selector)


@dataclass(slots=True)
class UnwatchedTarget:
    """A target without a watch, at its last read."""

    object: Object
    """A Deployment's fields that sizing uses: `spec.replicas`, `status.replicas`, `status.readyReplicas`; the
    selector is text."""
    pods: dict[str, Object] = field(default_factory=dict)
    """By uid."""
    read_at: float = 0.0
    """Monotonic seconds."""


class Targets:
    """Discovers the kinds of targets, and reads the targets without a watch."""

    def __init__(self, kube: Kube, only_namespace: str = "") -> None:
        """Discover other scalers in `only_namespace`, or in all namespaces if it is empty."""
        self._kube = kube
        self._scalers_path = SCALERS.path(only_namespace or None)
        self._kinds: dict[tuple[str, str], tuple[Kind | None, float]] = {}
        """By API version and name: the kind, or None if the API lacks it, and the monotonic seconds of the
        next discovery of a missing kind."""
        self._unwatched: dict[tuple[Kind, Key], UnwatchedTarget] = {}
        self._scalers: dict[tuple[str, str, str], str] | None = None
        """Names of HorizontalPodAutoscalers, by namespace, kind and name of their target; None before they
        were listed."""
        self._list_lock = asyncio.Lock()
        """Held during a list."""
        self._next_scalers_list = 0.0
        """Monotonic seconds."""

    async def kind(self, api_version: str, name: str) -> Kind:
        """Return the kind with this name, by API discovery.

        Raises:
            errors.Permanent: `UnsupportedTarget`; the kind does not exist, or has no scale subresource.
        """
        known = kinds.of(api_version, name)
        if known is kinds.AUTOSCALER:
            raise errors.Permanent("UnsupportedTarget", "an Autoscaler cannot scale an Autoscaler")
        if known is not None and known.scale:
            return known
        kind, next_discovery = self._kinds.get((api_version, name), (None, 0.0))
        now = clock.monotonic()
        if kind is None and now >= next_discovery:
            kind = await self._discover(api_version, name)
            self._kinds[api_version, name] = kind, now + DISCOVERY_SECONDS
        if kind is None:
            message = f"there is no kind {name} of {api_version} with a scale subresource"
            raise errors.Permanent("UnsupportedTarget", message)
        return kind

    async def _discover(self, api_version: str, name: str) -> Kind | None:
        """Return the kind if the API serves it with a scale subresource, or None."""
        group, _, version = api_version.rpartition("/")
        prefix = f"/apis/{api_version}" if group else f"/api/{api_version}"
        try:
            document = answers.json_object(await self._kube.raw(prefix), prefix)
        except (errors.NotFound, errors.Invalid):  # Invalid: an API version with `..`
            return None
        listed = answers.objects_in(document, "resources", prefix)
        scalable = {r["name"].removesuffix("/scale") for r in listed if r["name"].endswith("/scale")}
        for resource in listed:
            if resource["kind"] == name and resource["name"] in scalable:
                return Kind(group, version, name, resource["name"], scale=ScaleSubresource())
        return None

    async def read(self, kind: Kind, key: Key, starts: Starts) -> UnwatchedTarget:
        """Return the target and its Pods, at most `READ_SECONDS` old; `starts` records changes of its Pods.

        Raises:
            errors.NotFound: there is no such target.
        """
        known, now = self._unwatched.get((kind, key)), clock.monotonic()
        if known is None or now - known.read_at >= READ_SECONDS:
            path = kind.path(key.namespace, key.name, "scale")
            scale = answers.json_object(await self._kube.raw(path), path)
            selector = (scale.get("status") or {}).get("selector") or ""
            listed = (
                (await self._kube.list(kinds.POD, key.namespace, labels=selector)).items if selector else []
            )
            before = known.pods if known is not None else {}
            known = UnwatchedTarget(
                _as_deployment(scale, selector, listed), {pod["metadata"]["uid"]: pod for pod in listed}, now
            )
            self._unwatched[kind, key] = known
            unix_seconds = clock.now().timestamp()
            for uid in before.keys() | known.pods.keys():
                starts.observe(before.get(uid), known.pods.get(uid), unix_seconds)
        return known

    def retain(self, keys: AbstractSet[Key]) -> None:
        """Remove the last reads of all targets but `keys`."""
        for kind, key in [(kind, key) for kind, key in self._unwatched if key not in keys]:
            del self._unwatched[kind, key]

    def expire(self, kind: Kind, key: Key) -> None:
        """Expire the last read of a target, because its count was written."""
        if (known := self._unwatched.get((kind, key))) is not None:
            known.read_at = -READ_SECONDS

    async def other_scaler(self, key: Key, kind: Kind) -> str:
        """Return the name of the HorizontalPodAutoscaler of a target; empty without a known scaler.

        Raises:
            errors.Internal, errors.Unavailable: the scalers were never listed, and cannot be listed now.
        """
        is_due = clock.monotonic() >= self._next_scalers_list
        # The first list is awaited by all callers, a later one by the caller that finds it due.
        if self._scalers is None or (is_due and not self._list_lock.locked()):
            async with self._list_lock:
                if clock.monotonic() >= self._next_scalers_list:
                    self._scalers = await self._list_scalers()
                    self._next_scalers_list = clock.monotonic() + SCALERS_SECONDS
        assert self._scalers is not None
        return self._scalers.get((key.namespace, kind.kind, key.name), "")

    async def _list_scalers(self) -> dict[tuple[str, str, str], str]:
        try:
            path = self._scalers_path
            document = answers.json_object(await self._kube.raw(path), path)
            scalers = answers.objects_in(document, "items", path)
        except (errors.NotFound, errors.Forbidden):
            return {}
        except (errors.Internal, errors.Unavailable):
            if self._scalers is None:  # without the list a count of another scaler would be overwritten
                raise
            return self._scalers
        return {
            (scaler["metadata"]["namespace"], ref["kind"], ref["name"]): scaler["metadata"]["name"]
            for scaler in scalers
            for ref in [scaler["spec"]["scaleTargetRef"]]
        }


def _as_deployment(scale: Object, selector: str, pods: list[Object]) -> Object:
    """Return `UnwatchedTarget.object` from a target's scale subresource and its Pods."""
    ready = sum(is_ready(pod) and not is_deleting(pod) for pod in pods)
    return {
        "metadata": scale["metadata"],
        "spec": {"replicas": (scale.get("spec") or {}).get("replicas", 0), "selector": selector},
        "status": {"replicas": (scale.get("status") or {}).get("replicas", 0), "readyReplicas": ready},
    }

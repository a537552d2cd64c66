"""What is scaled, of whatever kind: read and written through its scale subresource, with its Pods."""

from dataclasses import dataclass, field
from typing import Any

import orjson

from autoscaler.starts import Starts, is_ready
from serving import clock, errors
from serving.kube import Key, Kube
from serving.resources import kinds
from serving.resources.kinds import Kind

Object = dict[str, Any]

LOOK_SECONDS = 15.0
"""Between looks at what nothing is watched of: other kinds than Deployments, Pods that are not an Inference's."""
FORGET_SECONDS = 300.0
"""For so long a kind that is not there is not asked for again: somebody may install it."""
OTHERS_SECONDS = 60.0
"""Between looks for HorizontalPodAutoscalers: two that fight do so every 15 s."""
SCALERS = "/apis/autoscaling/v2/horizontalpodautoscalers"


@dataclass(frozen=True, slots=True)
class Seen:
    """A target at the moment of a decision."""

    kind: Kind
    object: Object
    """A Deployment, or what has its fields that count."""
    pods: list[Object]
    is_ours: bool
    """Whether it is an Inference's, so that gateways count its requests."""

    @property
    def name(self) -> str:
        return str(self.object["metadata"]["name"])


@dataclass(slots=True)
class Foreign:
    """A target that is looked at, as it was then."""

    object: Object
    """With the fields of a Deployment that count: `spec.replicas`, `status.replicas`, `status.readyReplicas`."""
    pods: dict[str, Object] = field(default_factory=dict)
    """By uid."""
    looked: float = 0.0


class Targets:
    """Kinds by discovery, and targets that are looked at."""

    def __init__(self, kube: Kube) -> None:
        self._kube = kube
        self._kinds: dict[tuple[str, str], tuple[Kind | None, float]] = {}
        self._seen: dict[tuple[Kind, Key], Foreign] = {}
        self._others: dict[tuple[str, str, str], str] = {}
        """HorizontalPodAutoscalers by namespace, kind and name of what they scale."""
        self._others_until = 0.0

    async def kind(self, api_version: str, name: str) -> Kind:
        """Return the kind with this name, by what the API says it has.

        Raises:
            errors.Permanent: `UnsupportedTarget`; there is none, or it has no scale subresource.
        """
        known = kinds.of(api_version, name)
        if known is not None and known.scale:
            return known
        found, until = self._kinds.get((api_version, name), (None, 0.0))
        now = clock.monotonic()
        if found is None and now >= until:
            found = await self._discovered(api_version, name)
            self._kinds[api_version, name] = found, now + FORGET_SECONDS
        if found is None:
            message = f"there is no kind {name} of {api_version} with a scale subresource"
            raise errors.Permanent("UnsupportedTarget", message)
        return found

    async def _discovered(self, api_version: str, name: str) -> Kind | None:
        group, _, version = api_version.rpartition("/")
        prefix = f"/apis/{api_version}" if group else f"/api/{api_version}"
        try:
            listed = orjson.loads(await self._kube.raw(prefix))["resources"]
        except errors.NotFound:
            return None
        scalable = {r["name"].removesuffix("/scale") for r in listed if r["name"].endswith("/scale")}
        for resource in listed:
            if resource["kind"] == name and resource["name"] in scalable:
                return Kind(group, version, name, resource["name"], scale=True)
        return None

    async def look(self, kind: Kind, key: Key, starts: Starts) -> Foreign:
        """Return the target and its Pods, as they are or were a few seconds ago; what its Pods did goes to `starts`.

        Raises:
            errors.NotFound: there is no such target.
        """
        known, now = self._seen.get((kind, key)), clock.monotonic()
        if known is None or now - known.looked >= LOOK_SECONDS:
            scale = orjson.loads(await self._kube.raw(kind.path(key.namespace, key.name, "scale")))
            selector = (scale.get("status") or {}).get("selector") or ""
            listed = (
                (await self._kube.list(kinds.POD, key.namespace, labels=selector)).items if selector else []
            )
            before = known.pods if known is not None else {}
            known = Foreign(
                _as_deployment(scale, listed), {pod["metadata"]["uid"]: pod for pod in listed}, now
            )
            self._seen[kind, key] = known
            moment = clock.now().timestamp()
            for uid in before.keys() | known.pods.keys():
                starts.seen(before.get(uid), known.pods.get(uid), moment)
        return known

    def again(self, kind: Kind, key: Key) -> None:
        """Look at a target when it is asked for next: its count was written."""
        if (known := self._seen.get((kind, key))) is not None:
            known.looked = -LOOK_SECONDS

    async def other_scaler(self, key: Key, kind: Kind) -> str:
        """Return the name of a HorizontalPodAutoscaler of a target; empty where there is none, or none can be
        listed.
        """
        now = clock.monotonic()
        if now >= self._others_until:
            self._others_until = now + OTHERS_SECONDS
            self._others = await self._scalers()
        return self._others.get((key.namespace, kind.kind, key.name), "")

    async def _scalers(self) -> dict[tuple[str, str, str], str]:
        try:
            found = orjson.loads(await self._kube.raw(SCALERS))["items"]
        except (errors.NotFound, errors.Forbidden):
            return {}
        except errors.Unavailable:
            return self._others
        return {
            (scaler["metadata"]["namespace"], ref["kind"], ref["name"]): scaler["metadata"]["name"]
            for scaler in found
            for ref in [scaler["spec"]["scaleTargetRef"]]
        }


def _as_deployment(scale: Object, pods: list[Object]) -> Object:
    ready = sum(map(is_ready, pods))
    return {
        "metadata": scale["metadata"],
        "spec": {"replicas": (scale.get("spec") or {}).get("replicas", 0)},
        "status": {"replicas": (scale.get("status") or {}).get("replicas", 0), "readyReplicas": ready},
    }

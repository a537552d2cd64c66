"""Events: transitions of an object, for people to read. Nothing depends on them; losing one is harmless."""

import hashlib
import logging
from typing import Any, Literal

from serving import clock, errors
from serving.kube.connection.client import Kube
from serving.resources import kinds

log = logging.getLogger(__name__)


class EventRecorder:
    """Writes core/v1 Events in the name of one component; a repeated Event raises its count."""

    def __init__(self, kube: Kube, component: str) -> None:
        self._kube = kube
        self._component = component

    async def emit(
        self, obj: dict[str, Any], reason: str, message: str, type_: Literal["Normal", "Warning"] = "Normal"
    ) -> None:
        """Record that `reason` (CamelCase) happened to `obj`; failures are logged, never raised."""
        meta = obj["metadata"]
        now = clock.rfc3339(clock.now())
        identity = f"{meta.get('uid')}/{self._component}/{reason}/{message}"
        name = f"{meta['name']}.{hashlib.sha256(identity.encode()).hexdigest()[:16]}"
        namespace = meta.get("namespace", "default")
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": namespace},
            "involvedObject": {
                "apiVersion": obj.get("apiVersion", ""),
                "kind": obj.get("kind", ""),
                "name": meta["name"],
                "namespace": namespace,
                "uid": meta.get("uid", ""),
            },
            "reason": reason,
            "message": message[:1024],
            "type": type_,
            "count": 1,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "source": {"component": self._component},
            "reportingComponent": self._component,
            "reportingInstance": self._component,
        }
        try:
            try:
                await self._kube.create(kinds.EVENT_V1, event)  # first, as most happen once
            except errors.AlreadyExists:
                existing = await self._kube.get(kinds.EVENT_V1, namespace, name)
                patch = {"count": int(existing.get("count") or 1) + 1, "lastTimestamp": now}
                await self._kube.patch(kinds.EVENT_V1, namespace, name, patch)
        except (errors.ApiError, errors.Unavailable) as error:
            log.warning("event %s on %s/%s was not recorded: %s", reason, namespace, meta["name"], error)

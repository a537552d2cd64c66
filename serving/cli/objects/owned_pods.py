"""The Pods that an object owns."""

from typing import TYPE_CHECKING

from serving.objects import Object
from serving.resources import kinds

if TYPE_CHECKING:
    from serving.kube import Kube


async def of(kube: "Kube", owner: Object) -> list[Object]:
    """Return the Pods that have the object among their owners."""
    uid = owner["metadata"]["uid"]
    pods = (await kube.list(kinds.POD, owner["metadata"]["namespace"])).items
    return [
        pod
        for pod in pods
        if any(ref.get("uid") == uid for ref in pod["metadata"].get("ownerReferences") or [])
    ]

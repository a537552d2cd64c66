"""Deletion: finalizers, preconditions and dependents."""

from typing import Any

import pytest

from serving import errors
from serving.kube import Kube
from serving.resources import kinds
from tests.objects.contract_objects import eventually, gone, model
from tests.rig.control_plane import namespaces


async def test_object_stays_until_its_last_finalizer_is_gone(kube: Kube, namespace: str) -> None:
    await kube.create(kinds.MODEL, model(namespace, finalizers=["slipway.dev/test"]))
    await kube.delete(kinds.MODEL, namespace, "m")
    terminating = await kube.get(kinds.MODEL, namespace, "m")
    assert terminating["metadata"]["deletionTimestamp"]
    assert terminating["metadata"]["generation"] == 2
    released = await kube.patch(kinds.MODEL, namespace, "m", {"metadata": {"finalizers": None}})
    assert "finalizers" not in released["metadata"]
    assert await gone(kube, kinds.MODEL, namespace, "m")


async def test_no_finalizer_is_added_when_the_object_is_being_deleted(kube: Kube, namespace: str) -> None:
    await kube.create(kinds.MODEL, model(namespace, finalizers=["slipway.dev/test"]))
    await kube.delete(kinds.MODEL, namespace, "m")
    patch = {"metadata": {"finalizers": ["slipway.dev/test", "slipway.dev/late"]}}
    with pytest.raises(errors.Invalid, match=r"slipway\.dev/late"):
        await kube.patch(kinds.MODEL, namespace, "m", patch)
    await kube.patch(kinds.MODEL, namespace, "m", {"metadata": {"finalizers": None}})


async def test_object_is_not_deleted_when_the_uid_is_another(kube: Kube, namespace: str) -> None:
    await kube.create(kinds.MODEL, model(namespace))
    await kube.delete(kinds.MODEL, namespace, "m", uid="00000000-0000-0000-0000-000000000000")
    assert not await gone(kube, kinds.MODEL, namespace, "m")


def child_of(owner: dict[str, Any], **meta: Any) -> dict[str, Any]:
    reference = {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "blockOwnerDeletion": True,
    }
    return model(owner["metadata"]["namespace"], "child", ownerReferences=[reference], **meta)


async def test_dependents_are_deleted_with_their_owner(kube: Kube, namespace: str) -> None:
    owner = await kube.create(kinds.MODEL, model(namespace, "owner"))
    await kube.create(kinds.MODEL, child_of(owner))
    await kube.delete(kinds.MODEL, namespace, "owner")
    await eventually(lambda: gone(kube, kinds.MODEL, namespace, "child"), seconds=30)


async def test_foreground_deletion_waits_for_blocking_dependents(kube: Kube, namespace: str) -> None:
    owner = await kube.create(kinds.MODEL, model(namespace, "owner"))
    await kube.create(kinds.MODEL, child_of(owner, finalizers=["slipway.dev/test"]))
    await kube.delete(kinds.MODEL, namespace, "owner", propagation="Foreground")

    async def child_is_terminating() -> bool:
        return "deletionTimestamp" in (await kube.get(kinds.MODEL, namespace, "child"))["metadata"]

    await eventually(child_is_terminating, seconds=30)
    assert "foregroundDeletion" in (await kube.get(kinds.MODEL, namespace, "owner"))["metadata"]["finalizers"]
    await kube.patch(kinds.MODEL, namespace, "child", {"metadata": {"finalizers": None}})
    await eventually(lambda: gone(kube, kinds.MODEL, namespace, "owner"), seconds=30)


async def test_dependents_stay_when_their_owner_is_deleted_as_orphan(kube: Kube, namespace: str) -> None:
    owner = await kube.create(kinds.MODEL, model(namespace, "owner"))
    await kube.create(kinds.MODEL, child_of(owner))
    await kube.delete(kinds.MODEL, namespace, "owner", propagation="Orphan")
    await eventually(lambda: gone(kube, kinds.MODEL, namespace, "owner"), seconds=30)
    assert not (await kube.get(kinds.MODEL, namespace, "child"))["metadata"].get("ownerReferences")


@pytest.mark.server_only("its namespaces end at once")
async def test_namespace_ends_only_without_the_finalizers_of_its_objects(kube: Kube, namespace: str) -> None:
    name = f"{namespace}-held"
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    await kube.create(kinds.NAMESPACE, body)
    held = {**model(name, "v", finalizers=["slipway.dev/model-image"]), "kind": "ModelVersion"}
    held["spec"] = {"modelName": "m", "source": {"path": "/models/a"}}
    await kube.create(kinds.MODEL_VERSION, held)
    await kube.delete(kinds.NAMESPACE, None, name)

    async def version_is_terminating() -> bool:
        return "deletionTimestamp" in (await kube.get(kinds.MODEL_VERSION, name, "v"))["metadata"]

    await eventually(version_is_terminating, seconds=30)
    assert not await gone(kube, kinds.NAMESPACE, None, name)
    await namespaces.delete(kube, name)
    await eventually(lambda: gone(kube, kinds.NAMESPACE, None, name), seconds=30)

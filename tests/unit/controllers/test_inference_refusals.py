"""What the Inference controller does when the API refuses a child, or somebody else has its name."""

import asyncio
import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from serving import errors
from serving.kube import VersionReader
from serving.objects import Object
from serving.resources import kinds
from serving.resources.kinds import Kind
from serving.resources.kubernetes import conditions
from serving.resources.kubernetes.cluster_versions import ClusterVersions
from tests.fakes.kube import FakeKube
from tests.fakes.surroundings import NS, predictor
from tests.rig.control_plane.convergence import until
from tests.unit.controllers.test_inference_statuses import QUICK, TWO, ControllerRig, controlled, node

OFTEN = dataclasses.replace(QUICK, backoff_base_seconds=0.001, backoff_cap_seconds=0.05)
QUOTA = "exceeded quota: objects, requested: 1, used: 4, limited: 4"
TERMINATING = errors.Cause("metadata.namespace", "default is being terminated", errors.NAMESPACE_TERMINATING)
STABLE = predictor("stable", "digits-v1", autoScale={"minReplicas": 2, "maxReplicas": 2})


OTHER = predictor("other", "digits-v2")


def edit(rig: ControllerRig, *predictors: Object) -> None:
    rig.api.change(kinds.INFERENCE, NS, "digits", {"spec": {"predictors": [*predictors]}})


def named(rig: ControllerRig, kind: Kind, name: str) -> Object | None:
    return next((obj for obj in rig.api.find(kind) if obj["metadata"]["name"] == name), None)


def forbid(rig: ControllerRig, kind: Kind, prefix: str, *causes: errors.Cause) -> None:
    """Forbid the creation of objects whose name begins so, as a quota or a webhook does."""

    def refuse(refused: Kind, obj: Object) -> str:
        if refused is kind and obj["metadata"]["name"].startswith(prefix):
            raise errors.Forbidden(403, "Forbidden", QUOTA, causes)
        return ""

    rig.api.refusals.append(refuse)


def arm(rig: ControllerRig, name: str) -> tuple[str, str]:
    """Return reason and message of an arm."""
    arms = (rig.inference.get("status") or {}).get("predictors") or []
    return next(((str(a["reason"]), str(a["message"])) for a in arms if a["name"] == name), ("", ""))


def condition(rig: ControllerRig, type_: str) -> tuple[str, str, str]:
    found = conditions.find((rig.inference.get("status") or {}).get("conditions"), type_) or {}
    return found.get("status", ""), found.get("reason", ""), found.get("message", "")


@pytest.mark.parametrize(
    ("kind", "words"),
    [(kinds.DEPLOYMENT, "was refused: "), (kinds.SERVICE, ": its Service was refused: ")],
)
async def test_forbidden_child_of_a_revision_is_reported_blocks_no_other_arm_and_is_tried_again(
    kind: Kind, words: str
) -> None:
    async with controlled(OFTEN, TWO[0]) as rig:
        await until(lambda: rig.ready[0] == "True")
        forbid(rig, kind, "digits-new-")
        edit(rig, *TWO)
        await until(lambda: arm(rig, "new")[0] == "RevisionRefused" and arm(rig, "stable")[0] == "Ready")
        assert arm(rig, "new")[1].endswith(words + QUOTA)
        assert rig.is_current
        assert all(s["backend"].startswith("digits-stable-") for s in rig.around.history[-1]["segments"])
        rig.api.refusals.clear()  # nothing else changes
        await until(lambda: rig.ready[0] == "True")


async def test_namespace_that_terminates_is_no_refusal_of_a_revision() -> None:
    async with controlled(OFTEN, OTHER) as rig:
        await until(lambda: rig.ready[0] == "True")
        forbid(rig, kinds.DEPLOYMENT, "digits-stable-", TERMINATING)
        edit(rig, OTHER, STABLE)
        attempt = "create deployments/digits-stable-"
        await until(lambda: sum(write.startswith(attempt) for write in rig.api.writes) > 3)
        assert "RevisionRefused" not in rig.statuses()
        assert len(rig.api.find(kinds.SERVICE)) == 1


@pytest.mark.parametrize(
    ("kind", "type_", "reason"),
    [
        (kinds.AUTOSCALER, "ScalingActive", "AutoscalerRefused"),
        (kinds.POD_DISRUPTION_BUDGET, "DisruptionsLimited", "PodDisruptionBudgetRefused"),
        (kinds.ROUTE, "RoutesReady", "RouteRefused"),
    ],
)
async def test_forbidden_child_has_a_condition_and_is_tried_again(
    kind: Kind, type_: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with controlled(OFTEN, OTHER) as rig:
        await until(lambda: rig.ready[0] == "True")
        allow = refuse_writes(monkeypatch, "apply", kind)
        edit(rig, STABLE)
        await until(lambda: condition(rig, type_)[:2] == ("False", reason))
        assert condition(rig, type_)[2].endswith(" was refused: denied by a webhook")
        assert rig.is_current
        assert rig.around.history[-1]["segments"]
        if kind is not kinds.ROUTE:
            await until(lambda: rig.ready[0] == "True")
        allow()
        await until(lambda: rig.ready[0] == "True" and condition(rig, type_)[1] != reason)
        assert named(rig, kind, "digits" if kind is kinds.ROUTE else "digits-stable")


def refuse_writes(monkeypatch: pytest.MonkeyPatch, method: str, kind: Kind) -> Callable[[], None]:
    """Forbid the controller's writes of a kind by one method of the client; returns what allows them."""
    write, is_refused = getattr(FakeKube, method), [True]

    async def refuse(self: FakeKube, written: Kind, *args: Any, **options: Any) -> Any:
        if written is kind and self.field_manager == "slipway-inference" and is_refused:
            raise errors.Forbidden(403, "Forbidden", "denied by a webhook")
        return await write(self, written, *args, **options)

    monkeypatch.setattr(FakeKube, method, refuse)
    return is_refused.clear


async def test_status_is_written_when_a_retired_child_must_not_be_deleted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with controlled(OFTEN, predictor("stable", "digits-v1")) as rig:
        await until(lambda: rig.ready[0] == "True")
        allow = refuse_writes(monkeypatch, "delete", kinds.DEPLOYMENT)
        edit(rig, predictor("stable", "digits-v2"))
        await until(lambda: rig.is_current and rig.ready == ("True", "Ready"))
        await until(lambda: "RemovalRefused" in rig.events())
        assert "denied by a webhook" in rig.events()["RemovalRefused"]
        await until(lambda: len(rig.api.find(kinds.SERVICE)) == 1)
        allow()
        await until(lambda: len(rig.api.find(kinds.DEPLOYMENT)) == 1)


async def test_template_that_must_not_be_put_back_is_reported_and_its_revision_serves_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with controlled(OFTEN, STABLE) as rig:
        await until(lambda: rig.ready[0] == "True")
        budgets = rig.api.find(kinds.POD_DISRUPTION_BUDGET)
        allow = refuse_writes(monkeypatch, "patch", kinds.DEPLOYMENT)
        (deployment,) = rig.api.find(kinds.DEPLOYMENT)
        containers = deployment["spec"]["template"]["spec"]["containers"]
        edited = [{**containers[0], "env": []}]
        patch = {"spec": {"template": {"spec": {"containers": edited}}}}
        rig.api.change(kinds.DEPLOYMENT, NS, deployment["metadata"]["name"], patch)
        await until(lambda: arm(rig, "stable")[0] == "RevisionRefused")
        assert rig.around.history[-1]["segments"]
        assert rig.api.find(kinds.POD_DISRUPTION_BUDGET) == budgets
        allow()
        await until(lambda: rig.ready[0] == "True")
        (deployment,) = rig.api.find(kinds.DEPLOYMENT)
        assert deployment["spec"]["template"]["spec"]["containers"] == containers


USERS_BUDGET = {"spec": {"minAvailable": 5, "selector": {"matchLabels": {"app": "theirs"}}}}
USERS_AUTOSCALER = {"spec": {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "x"}}}


@pytest.mark.parametrize(
    ("kind", "theirs", "type_"),
    [
        (kinds.POD_DISRUPTION_BUDGET, USERS_BUDGET, "DisruptionsLimited"),
        (kinds.AUTOSCALER, USERS_AUTOSCALER, "ScalingActive"),
    ],
)
async def test_object_of_a_user_is_left_and_reported_when_it_has_the_name_of_a_child(
    kind: Kind, theirs: Object, type_: str
) -> None:
    async with controlled(OFTEN, OTHER) as rig:
        await until(lambda: rig.ready[0] == "True")
        meta = {"name": "digits-stable", "namespace": NS, "labels": {"slipway.dev/inference": "digits"}}
        before = rig.api.add(kind, {**theirs, "metadata": meta})
        edit(rig, STABLE)
        await until(lambda: rig.ready[0] == "True" and condition(rig, type_)[1] == "NameTaken")
        assert f"{kind.kind} digits-stable is not of this Inference" in condition(rig, type_)[2]
        assert named(rig, kind, "digits-stable") == before
        rig.api.remove(kind, NS, "digits-stable")
        await until(lambda: condition(rig, type_)[1] != "NameTaken")
        ours = named(rig, kind, "digits-stable")
        assert ours is not None
        assert ours["metadata"]["ownerReferences"][0]["name"] == "digits"


async def test_orphaned_children_serve_on_when_their_inference_is_created_again() -> None:
    async with controlled(OFTEN, predictor("stable", "digits-v1")) as rig:
        await until(lambda: rig.ready[0] == "True")
        (old,) = rig.api.find(kinds.DEPLOYMENT)
        await rig.api.client("user").delete(kinds.INFERENCE, NS, "digits", propagation="Orphan")
        await until(lambda: not rig.api.find(kinds.INFERENCE))
        seen = len(rig.around.history)
        rig.around.broken.add("digits-v2")
        body = {"metadata": {"name": "digits"}, "spec": spec(predictor("stable", "digits-v2"))}
        await rig.api.client("user").create(kinds.INFERENCE, body)
        await until(lambda: rig.ready == ("False", "ReplicasNotReady"))
        assert all(route["segments"] for route in rig.around.history[seen:])
        uid = rig.inference["metadata"]["uid"]
        for kind in (kinds.DEPLOYMENT, kinds.SERVICE, kinds.ROUTE, kinds.AUTOSCALER):
            for child in rig.api.find(kind):
                assert [owner["uid"] for owner in child["metadata"]["ownerReferences"]] == [uid], child
        rig.around.broken.clear()
        rig.api.change(kinds.INFERENCE, NS, "digits", {"metadata": {"labels": {"look": "again"}}})
        await until(lambda: rig.ready[0] == "True")
        await until(lambda: len(rig.api.find(kinds.DEPLOYMENT)) == 1)
        assert rig.api.find(kinds.DEPLOYMENT)[0]["metadata"]["name"] != old["metadata"]["name"]


async def test_orphans_are_not_adopted_by_an_inference_that_is_deleted_while_nodes_are_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with controlled(OFTEN, predictor("stable", "digits-v1"), nodes=[node("containerd://2.1.0")]) as rig:
        await until(lambda: rig.ready[0] == "True")
        reading, go_on, read = asyncio.Event(), asyncio.Event(), VersionReader.read

        async def slow(reader: VersionReader) -> ClusterVersions:
            versions = await read(reader)
            reading.set()
            await go_on.wait()
            return versions

        monkeypatch.setattr(VersionReader, "read", slow)
        rig.api.change(kinds.INFERENCE, NS, "digits", {"metadata": {"labels": {"look": "again"}}})
        await reading.wait()
        await rig.api.client("user").delete(kinds.INFERENCE, NS, "digits", propagation="Orphan")
        await until(lambda: "ownerReferences" not in rig.api.find(kinds.DEPLOYMENT)[0]["metadata"])
        go_on.set()
        await until(lambda: not rig.api.find(kinds.INFERENCE))
        for kind in (kinds.DEPLOYMENT, kinds.SERVICE, kinds.ROUTE, kinds.AUTOSCALER):
            assert all(not child["metadata"].get("ownerReferences") for child in rig.api.find(kind)), kind
            assert rig.api.find(kind)


def spec(*predictors: Object) -> Object:
    return {"framework": "sklearn", "predictors": [*predictors]}

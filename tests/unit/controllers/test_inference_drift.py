"""The Inference controller puts back what others have written, against an API in memory."""

import copy
import dataclasses
from typing import Any

import pytest

from serving import clock
from serving.controllers.put_backs import PutBacks
from serving.kube import Key
from serving.objects import Object
from serving.resources import kinds
from serving.resources.kubernetes import conditions
from serving.resources.kubernetes.patch_types import JSON_PATCH
from tests.fakes.kube import FakeKube
from tests.fakes.surroundings import NS, predictor
from tests.rig.control_plane.convergence import until
from tests.unit.controllers.test_inference_statuses import QUICK, ControllerRig, controlled

ONE = predictor("stable", "digits-v1")
ENV = "/spec/template/spec/containers/0/env/-"


def deployment(rig: ControllerRig) -> Object:
    return rig.api.find(kinds.DEPLOYMENT)[0]


def env(rig: ControllerRig) -> set[str]:
    return {item["name"] for item in deployment(rig)["spec"]["template"]["spec"]["containers"][0]["env"]}


async def add_env(rig: ControllerRig, name: str) -> int:
    """Add a variable as `kubectl set env` does; returns the generation."""
    patch = [{"op": "add", "path": ENV, "value": {"name": name, "value": "1"}}]
    client = rig.api.client("user")
    written = await client.patch(
        kinds.DEPLOYMENT, NS, deployment(rig)["metadata"]["name"], patch, content_type=JSON_PATCH
    )
    return int(written["metadata"]["generation"])


async def test_added_variable_is_removed_and_an_event_names_the_writer() -> None:
    async with controlled(QUICK, ONE) as rig:
        await until(lambda: rig.ready[0] == "True")
        rendered = deployment(rig)["spec"]["template"]
        await add_env(rig, "EVIL")
        await until(lambda: "EVIL" not in env(rig))
        await until(lambda: "TemplatePutBack" in rig.events())
        name = deployment(rig)["metadata"]["name"]
        assert rig.events()["TemplatePutBack"] == (
            f"put back the Pod template of revision {name}:"
            " slipway-user had written spec.containers[name=predictor].env[name=EVIL]"
        )
        assert deployment(rig)["spec"]["template"] == rendered


async def test_second_edit_is_put_back_after_the_pause() -> None:
    settings = dataclasses.replace(QUICK, backoff_cap_seconds=0.2)
    async with controlled(settings, ONE) as rig:
        await until(lambda: rig.ready[0] == "True")
        for name in ("EVIL", "WORSE"):
            await add_env(rig, name)
            await until(lambda name=name: name not in env(rig))


async def test_webhook_that_adds_a_variable_is_asked_once_and_not_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    api_patch = FakeKube.patch

    async def patch_with_webhook(self: FakeKube, kind: kinds.Kind, *where: str, **options: Any) -> Object:
        namespace, name, patch = where
        if kind is kinds.DEPLOYMENT and self.field_manager == "slipway-inference":
            patch = copy.deepcopy(patch)
            patch[0]["value"]["spec"]["containers"][0]["env"].append({"name": "WEBHOOK", "value": "1"})
        return await api_patch(self, kind, namespace, name, patch, **options)

    monkeypatch.setattr(FakeKube, "patch", patch_with_webhook)
    async with controlled(dataclasses.replace(QUICK, backoff_cap_seconds=0.001), ONE) as rig:
        await until(lambda: rig.ready[0] == "True")
        await add_env(rig, "WEBHOOK")
        write = f"patch deployments/{deployment(rig)['metadata']['name']}"
        await until(lambda: rig.api.writes.count(write) == 2)  # the user's, and the only attempt
        for maximum in (3, 4, 5):
            changed = {**ONE, "autoScale": {"maxReplicas": maximum}}
            rig.api.change(kinds.INFERENCE, NS, "digits", {"spec": {"predictors": [changed]}})
            await until(lambda: rig.is_current)
        assert rig.api.writes.count(write) == 2
        assert "TemplatePutBack" not in rig.events()


async def test_candidate_whose_template_a_webhook_edits_becomes_ready(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    api_create, api_patch = FakeKube.create, FakeKube.patch

    def edit(spec: Object) -> None:
        env = spec["containers"][0].setdefault("env", [])
        if not any(entry["name"] == "WEBHOOK" for entry in env):
            env.append({"name": "WEBHOOK", "value": "1"})

    async def create(self: FakeKube, kind: kinds.Kind, obj: Object) -> Object:
        if kind is kinds.DEPLOYMENT:
            obj = copy.deepcopy(obj)
            edit(obj["spec"]["template"]["spec"])
        return await api_create(self, kind, obj)

    async def patch(self: FakeKube, kind: kinds.Kind, *where: str, **options: Any) -> Object:
        namespace, name, changes = where
        if kind is kinds.DEPLOYMENT and isinstance(changes, list):
            changes = copy.deepcopy(changes)
            edit(changes[0]["value"]["spec"])
        return await api_patch(self, kind, namespace, name, changes, **options)

    monkeypatch.setattr(FakeKube, "create", create)
    monkeypatch.setattr(FakeKube, "patch", patch)
    async with controlled(dataclasses.replace(QUICK, backoff_cap_seconds=0.001), ONE) as rig:
        await until(lambda: rig.ready[0] == "True")
        assert "WEBHOOK" in env(rig)
        assert any(write.startswith("patch deployments/") for write in rig.api.writes), "it was put back"


def test_put_backs_of_one_deployment_are_paused(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(clock, "monotonic", lambda: now)
    put_backs, key = PutBacks(30.0), Key(NS, "digits")

    def stored(generation: int) -> Object:
        return {"metadata": {"uid": "u", "generation": generation}}

    assert not put_backs.blocked(key, {"d": stored(1)})
    put_backs.done(key, stored(2))
    now = 129.0
    assert put_backs.blocked(key, {"d": stored(3)}) == {"d"}
    assert put_backs.seconds_left(key) == 1.0
    now = 130.0
    assert put_backs.seconds_left(key) is None
    assert not put_backs.blocked(key, {"d": stored(3)})
    assert put_backs.blocked(key, {"d": stored(2)}) == put_backs.in_vain(key, {"d": stored(2)}) == {"d"}
    assert not put_backs.in_vain(key, {"d": stored(3)})
    put_backs.forget(key)
    assert not put_backs.blocked(key, {"d": stored(2)})


async def test_no_template_is_written_when_nobody_edits_it() -> None:
    async with controlled(QUICK, ONE) as rig:
        await until(lambda: rig.ready[0] == "True")
        assert not [write for write in rig.api.writes if write.startswith("patch deployments/")]


async def test_status_written_by_others_is_replaced_at_once() -> None:
    async with controlled(QUICK, ONE) as rig:
        await until(lambda: rig.ready[0] == "True")
        before = rig.inference["status"]
        fake = {**conditions.find(before["conditions"], "Ready"), "type": "Fake"}
        patch = {"status": {"url": "http://evil", "conditions": [*before["conditions"], fake]}}
        await rig.api.client("user").patch(kinds.INFERENCE, NS, "digits", patch, subresource="status")
        await until(lambda: rig.inference["status"] == before)


async def test_status_removed_by_others_is_written_again() -> None:
    async with controlled(QUICK, ONE) as rig:
        await until(lambda: rig.ready[0] == "True")
        user = rig.api.client("user")
        await user.patch(kinds.INFERENCE, NS, "digits", {"status": None}, subresource="status")
        await until(lambda: rig.ready[0] == "True")


async def test_removed_predictor_leaves_the_status_when_others_had_written_to_it() -> None:
    both = (predictor("stable", "digits-v1", weight=50), predictor("canary", "digits-v1", weight=50))
    async with controlled(QUICK, *both) as rig:
        await until(lambda: rig.ready[0] == "True")
        before = rig.inference["status"]
        stable = {**before["predictors"][0], "message": "mine"}
        patch = [{"op": "replace", "path": "/status/predictors", "value": [stable]}]
        user = rig.api.client("user")
        await user.patch(kinds.INFERENCE, NS, "digits", patch, subresource="status", content_type=JSON_PATCH)
        await until(lambda: rig.inference["status"] == before)
        spec = [{"op": "replace", "path": "/spec/predictors", "value": [{**both[0], "trafficWeight": 100}]}]
        await user.patch(kinds.INFERENCE, NS, "digits", spec, content_type=JSON_PATCH)
        await until(lambda: [arm["name"] for arm in rig.inference["status"]["predictors"]] == ["stable"])

"""The owners of a template's fields show which of them others have edited."""

import copy
import json
from typing import Any

import pytest

from serving.objects import Object
from serving.planning.inference import planner
from serving.planning.inference.comparison import template_edits
from serving.planning.inference.plan import PutBackTemplate
from tests.fakes.inference_world import NOW, InferenceWorld
from tests.fakes.surroundings import predictor

OWN = "slipway-controllers"
CONTAINERS = "f:containers"
PREDICTOR = 'k:{"name":"predictor"}'


def settled() -> tuple[InferenceWorld, Object]:
    """Return a world with one revision, and its Deployment."""
    world = InferenceWorld(predictor("stable", "v1"))
    world.settle()
    return world, next(iter(world.deployments.values()))


def owned(deployment: Object, manager: str, template: dict[str, Any]) -> None:
    entry = {"manager": manager, "operation": "Update", "fieldsV1": {"f:spec": {"f:template": template}}}
    deployment["metadata"].setdefault("managedFields", []).append(entry)


def of_container(fields: dict[str, Any]) -> dict[str, Any]:
    return {"f:spec": {CONTAINERS: {PREDICTOR: fields}}}


def container(deployment: Object) -> Object:
    first: Object = deployment["spec"]["template"]["spec"]["containers"][0]
    return first


def add_env(deployment: Object, manager: str, name: str = "EVIL") -> None:
    container(deployment)["env"].append({"name": name, "value": "1"})
    item = {f"k:{json.dumps({'name': name})}": {".": {}, "f:name": {}, "f:value": {}}}
    owned(deployment, manager, of_container({"f:env": item}))


def put_backs(world: InferenceWorld, **fields: Any) -> list[PutBackTemplate]:
    plan = planner.plan(world.now(field_manager=OWN, **fields), NOW)
    return [action for action in plan.actions if isinstance(action, PutBackTemplate)]


def test_added_variable_is_put_back_and_names_path_and_manager() -> None:
    world, deployment = settled()
    rendered = copy.deepcopy(deployment["spec"]["template"])
    add_env(deployment, "kubectl-set")
    [action] = put_backs(world)
    assert action == PutBackTemplate(
        deployment["metadata"]["name"],
        rendered,
        {"kubectl-set": ("spec.containers[name=predictor].env[name=EVIL]",)},
    )


def test_changed_image_is_put_back_and_names_path_and_manager() -> None:
    world, deployment = settled()
    container(deployment)["image"] = "evil"
    owned(deployment, "kubectl-edit", of_container({"f:image": {}}))
    [action] = put_backs(world)
    assert action.edits == {"kubectl-edit": ("spec.containers[name=predictor].image",)}


def test_removed_variable_is_put_back_without_a_manager() -> None:
    world, deployment = settled()
    container(deployment)["env"].pop()
    [action] = put_backs(world)
    assert not action.edits


def test_template_is_left_when_others_own_equal_fields() -> None:
    world, deployment = settled()
    owned(deployment, "kubectl-client-side-apply", of_container({".": {}, "f:image": {}, "f:name": {}}))
    assert not put_backs(world)


def test_template_is_left_when_a_server_adds_defaults() -> None:
    world, deployment = settled()
    deployment["spec"]["template"]["spec"] |= {"dnsPolicy": "ClusterFirst", "restartPolicy": "Always"}
    container(deployment)["terminationMessagePath"] = "/dev/termination-log"
    owned(deployment, OWN, {"f:spec": {"f:dnsPolicy": {}, "f:restartPolicy": {}}})
    assert not put_backs(world)


def test_template_is_left_when_it_was_put_back_at_this_generation() -> None:
    world, deployment = settled()
    add_env(deployment, "a-webhook")
    assert put_backs(world)
    assert not put_backs(world, put_back_blocked={deployment["metadata"]["name"]})


@pytest.mark.parametrize("edited", [False, True])
def test_restart_by_a_user_is_kept(*, edited: bool) -> None:
    world, deployment = settled()
    annotations = deployment["spec"]["template"]["metadata"]["annotations"]
    annotations[template_edits.RESTART_ANNOTATION] = NOW
    field = {"f:annotations": {f"f:{template_edits.RESTART_ANNOTATION}": {}}}
    owned(deployment, "kubectl-rollout", {"f:metadata": field})
    if not edited:
        assert not put_backs(world)
        return
    add_env(deployment, "kubectl-set")
    [action] = put_backs(world)
    assert list(action.edits) == ["kubectl-set"]
    assert action.template["metadata"]["annotations"][template_edits.RESTART_ANNOTATION] == NOW


def test_item_is_compared_when_its_rendered_key_has_a_default() -> None:
    template = {"spec": {"containers": [{"name": "own", "ports": [{"containerPort": 9090}]}]}}
    stored = {"containerPort": 9090, "protocol": "TCP", "hostPort": 80}
    deployment: Object = {
        "metadata": {},
        "spec": {"template": {"spec": {"containers": [{"name": "own", "ports": [stored]}]}}},
    }
    port = {'k:{"containerPort":9090,"protocol":"TCP"}': {"f:hostPort": {}, "f:containerPort": {}}}
    owned(deployment, "somebody", {"f:spec": {CONTAINERS: {'k:{"name":"own"}': {"f:ports": port}}}})
    path = "spec.containers[name=own].ports[containerPort=9090,protocol=TCP].hostPort"
    assert template_edits.edits_by_others(deployment, template, OWN) == {"somebody": (path,)}


def test_key_of_an_item_is_no_edit_when_the_items_of_the_list_have_no_keys() -> None:
    template = {"spec": {"containers": [{"name": "own", "args": ["--port"]}]}}
    deployment: Object = {"metadata": {}, "spec": {"template": template}}
    args = {"f:args": {'k:{"name":"--port"}': {}}}
    owned(deployment, "somebody", {"f:spec": {CONTAINERS: {'k:{"name":"own"}': args}}})
    assert template_edits.edits_by_others(deployment, template, OWN) == {}


def test_description_names_every_manager() -> None:
    edits = {"kubectl-set": ("a", "b"), "kubectl-edit": ("c",)}
    assert template_edits.describe(edits) == "kubectl-set had written a, b; kubectl-edit had written c"
    assert template_edits.describe({}) == "fields had been removed"

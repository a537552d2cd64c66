"""Which differences between a stored and a desired object are worth a write."""

import copy
from typing import Any

import pytest

from serving.embedded.apiserver.schema import defaults
from serving.objects import Object
from serving.planning.inference import planner
from serving.planning.inference.comparison import drift
from serving.planning.inference.plan import PutBackTemplate
from serving.resources.base import structural
from serving.resources.route import RouteBackend, RouteSpec
from tests.fakes.inference_world import NOW, InferenceWorld
from tests.fakes.surroundings import predictor


def template(**container: Any) -> Object:
    return {"spec": {"containers": [{"name": "predictor", **container}]}}


@pytest.mark.parametrize(
    ("desired", "stored"),
    [
        ({"resources": {"limits": {"cpu": "0.5"}}}, {"resources": {"limits": {"cpu": "500m"}}}),
        ({"resources": {"requests": {"cpu": 1}}}, {"resources": {"requests": {"cpu": "1"}}}),
        ({"resources": {"limits": {"memory": "1024Mi"}}}, {"resources": {"limits": {"memory": "1Gi"}}}),
        ({"resources": {"limits": {"cpu": "0.3333"}}}, {"resources": {"limits": {"cpu": "334m"}}}),
        ({"resources": {"limits": {}}}, {"resources": {}}),
        ({"env": [{"name": "A", "value": ""}]}, {"env": [{"name": "A"}]}),
        ({"args": []}, {}),
        ({"args": None, "tty": False}, {}),
        ({"livenessProbe": {"initialDelaySeconds": 0}}, {"livenessProbe": {"periodSeconds": 10}}),
    ],
)
def test_template_is_as_desired_when_the_server_writes_its_values_otherwise(
    desired: Object, stored: Object
) -> None:
    assert drift.template_covers(template(**stored), template(**desired))


def test_template_is_as_desired_when_the_server_drops_a_selector_without_labels() -> None:
    spread = {"maxSkew": 1, "topologyKey": "zone"}
    desired = {"spec": {"topologySpreadConstraints": [{**spread, "labelSelector": {"matchLabels": {}}}]}}
    stored = {"spec": {"topologySpreadConstraints": [{**spread, "labelSelector": {}}]}}
    assert drift.template_covers(stored, desired)


@pytest.mark.parametrize(
    ("desired", "stored"),
    [
        ({"resources": {"limits": {"cpu": "0.5"}}}, {"resources": {"limits": {"cpu": "5"}}}),
        ({"resources": {"limits": {"cpu": "0.3333"}}}, {"resources": {"limits": {"cpu": "333m"}}}),
        ({"resources": {"limits": {"cpu": "0.5"}}}, {"resources": {}}),
        ({"env": [{"name": "A", "value": ""}]}, {"env": [{"name": "A", "value": "1"}]}),
        ({"securityContext": {"allowPrivilegeEscalation": False}}, {"securityContext": {}}),
        ({"securityContext": {"runAsUser": 0}}, {"securityContext": {}}),
        ({"args": ["a"]}, {}),
    ],
)
def test_template_differs_when_a_value_of_it_does(desired: Object, stored: Object) -> None:
    assert not drift.template_covers(template(**stored), template(**desired))


def test_label_without_a_value_is_missed_when_it_is_removed() -> None:
    desired = {"metadata": {"labels": {"a": ""}}}
    assert not drift.template_covers({"metadata": {"labels": {}}}, desired)


def normalised() -> InferenceWorld:
    """Return a settled world whose API server has stored quantities and empty values in its own form."""
    own = {"containers": [{"name": "predictor", "env": [{"name": "EMPTY", "value": ""}], "stdin": False}]}
    resources = {"cpu": "0.5", "memory": "1024Mi"}
    world = InferenceWorld(predictor("stable", "v1", resources=resources, template=own))
    world.settle()
    (deployment,) = world.deployments.values()
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    container["resources"] = {key: {"cpu": "500m", "memory": "1Gi"} for key in ("requests", "limits")}
    container["env"] = [item if item["value"] else {"name": item["name"]} for item in container["env"]]
    del container["stdin"]
    return world


def test_nothing_is_written_when_the_server_has_stored_a_template_in_its_own_form() -> None:
    assert planner.plan(normalised().now(), NOW).actions == ()


def test_equal_value_of_another_writer_is_no_edit_when_it_is_written_otherwise() -> None:
    world = normalised()
    (deployment,) = world.deployments.values()
    limits = {"f:resources": {"f:limits": {"f:cpu": {}}}}
    owned = {"f:spec": {"f:containers": {'k:{"name":"predictor"}': limits}}}
    entry = {"manager": "kubectl-set", "fieldsV1": {"f:spec": {"f:template": owned}}}
    deployment["metadata"]["managedFields"] = [entry]
    assert planner.plan(world.now(), NOW).actions == ()
    container = deployment["spec"]["template"]["spec"]["containers"][0]
    container["resources"] = copy.deepcopy(container["resources"])
    container["resources"]["limits"]["cpu"] = "600m"
    (put_back,) = (a for a in planner.plan(world.now(), NOW).actions if isinstance(a, PutBackTemplate))
    assert put_back.edits == {"kubectl-set": ("spec.containers[name=predictor].resources.limits.cpu",)}


def test_autoscaler_is_as_desired_when_another_autoscaler_has_written_its_count() -> None:
    world = InferenceWorld(predictor("stable", "v1", autoScale={"managed": False}))
    world.settle()
    (autoscaler,) = world.children["Autoscaler"].values()
    autoscaler["spec"]["replicas"] = 3
    assert planner.plan(world.now(), NOW).actions == ()


BACKEND: Object = {"name": "a", "arm": "stable", "service": "a", "port": 8080}
ROUTE: Object = {"inference": "digits", "backends": [BACKEND], "segments": []}
SET_FIELDS: Object = {
    "sticky": {"header": "x-user", "salt": "1"},
    "tokenUsage": "continuous",
    "timeouts": {"request": "1s"},
    "retries": {"attempts": 1},
}
SET_BACKEND_FIELDS: Object = {
    "modelVersion": "v1",
    "protocol": "h2c",
    "onDemand": True,
    "autoscaler": "digits-stable",
    "probe": ["/v2/health/ready"],
    "timeouts": {"request": "1s"},
    "retries": {"attempts": 1},
    "ejection": {"maxPercent": 10},
    "limits": {"requests": 10},
}


def test_routes_differ_when_a_stored_optional_field_is_no_longer_desired() -> None:
    assert SET_FIELDS.keys() | ROUTE.keys() == structural(RouteSpec)["properties"].keys()
    assert SET_BACKEND_FIELDS.keys() | BACKEND.keys() == structural(RouteBackend)["properties"].keys()
    for field, value in SET_FIELDS.items():
        assert not drift.routes_alike({**ROUTE, field: value}, ROUTE), field
    for field, value in SET_BACKEND_FIELDS.items():
        assert not drift.routes_alike({**ROUTE, "backends": [{**BACKEND, field: value}]}, ROUTE), field


def test_routes_are_alike_when_the_server_has_added_the_defaults() -> None:
    stored = defaults.fill(ROUTE, structural(RouteSpec))
    assert stored["tokenUsage"] == "none"
    assert drift.routes_alike(stored, ROUTE)

"""`spec.routing` in the Route: what is the service's, what is a predictor's, and what a change writes."""

import copy
from typing import Any

import pytest

from serving.objects import Object
from tests.fakes.inference_world import InferenceWorld
from tests.fakes.surroundings import predictor


def settled(*predictors: Object, **spec: Any) -> InferenceWorld:
    world = InferenceWorld(*predictors, **spec)
    world.settle()
    return world


def routed(world: InferenceWorld) -> Object:
    assert world.route is not None
    spec: Object = world.route["spec"]
    return spec


def change(world: InferenceWorld, routing: Object) -> Object:
    """Change the routing as a user does, and return the Route's spec."""
    world.inference["spec"]["routing"] = routing
    world.inference["metadata"]["generation"] += 1
    world.settle()
    return routed(world)


@pytest.mark.parametrize(("framework", "causes"), [("sklearn", ["Unsent", "Lost"]), ("custom", ["Unsent"])])
def test_requests_that_a_replica_may_have_worked_on_are_repeated_for_our_runtimes_alone(
    framework: str, causes: list[str]
) -> None:
    arm = predictor("stable", "v1")
    arm["template"] = {"containers": [{"name": "predictor", "image": "registry.example/a:1"}]}
    route = routed(settled(arm, framework=framework))
    assert route["retries"] == {"on": causes}


def test_a_users_causes_replace_the_frameworks() -> None:
    world = settled(predictor("stable", "v1"), routing={"retries": {"on": ["Unavailable"], "attempts": 4}})
    assert routed(world)["retries"] == {"on": ["Unavailable"], "attempts": 4}


def test_a_predictors_field_has_precedence_over_the_services_field() -> None:
    stable, canary = predictor("stable", "v1"), predictor("canary", "v2")
    canary["routing"] = {
        "ejection": {"maxPercent": 10},
        "limits": {"requests": 5},
        "timeouts": {"request": "3s"},
    }
    routing = {
        "ejection": {"consecutiveFailures": 7, "maxPercent": 90},
        "limits": {"requests": 50},
        "timeouts": {"request": "1m", "perTry": "2s"},
    }
    route = routed(settled(stable, canary, routing=routing))
    policy = {
        backend["arm"]: {key: backend.get(key) for key in ("ejection", "limits", "timeouts")}
        for backend in route["backends"]
    }
    assert policy == {
        "stable": {
            "ejection": {"consecutiveFailures": 7, "maxPercent": 90},
            "limits": {"requests": 50},
            "timeouts": None,
        },
        "canary": {
            "ejection": {"consecutiveFailures": 7, "maxPercent": 10},
            "limits": {"requests": 5},
            "timeouts": {"request": "3s"},
        },
    }
    assert route["timeouts"] == {"request": "1m", "perTry": "2s"}


def test_a_predictors_own_retries_are_complete() -> None:
    stable, canary = predictor("stable", "v1"), predictor("canary", "v2")
    canary["routing"] = {"retries": {"attempts": 5}}
    routing = {"retries": {"budgetPercent": 3}}
    route = routed(settled(stable, canary, routing=routing))
    backends = {backend["arm"]: backend for backend in route["backends"]}
    assert "retries" not in backends["stable"]
    assert backends["canary"]["retries"] == {"on": ["Unsent", "Lost"], "budgetPercent": 3, "attempts": 5}


def test_a_change_of_routing_starts_no_revision() -> None:
    world = settled(predictor("stable", "v1"))
    deployments = copy.deepcopy(world.deployments)
    change(world, {"limits": {"requests": 5}, "timeouts": {"perTry": "2s"}})
    assert {name: item["spec"] for name, item in world.deployments.items()} == {
        name: item["spec"] for name, item in deployments.items()
    }


def test_a_removed_field_leaves_the_route() -> None:
    world = settled(predictor("stable", "v1"))
    before = copy.deepcopy(routed(world))
    full = {
        "timeouts": {"request": "1m", "perTry": "2s"},
        "retries": {"attempts": 1, "budgetPercent": 5, "acrossPredictors": False},
        "ejection": {"duration": "5s"},
        "limits": {"requests": 5},
    }
    assert change(world, full) != before
    assert change(world, {}) == before

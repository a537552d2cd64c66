"""The PodDisruptionBudgets of predictors that always have two replicas or more."""

from typing import Any

import pytest

from serving.objects import Object
from serving.planning.inference import planner
from serving.planning.inference.plan import Ensure
from serving.resources import kinds
from serving.resources.kubernetes import conditions
from serving.resources.kubernetes.conditions import StatusReason
from tests.fakes.inference_world import NOW, InferenceWorld
from tests.fakes.surroundings import predictor

TWO_TO_FOUR = {"minReplicas": 2, "maxReplicas": 4}


def settled(*predictors: Object) -> InferenceWorld:
    world = InferenceWorld(*predictors)
    world.plan()
    world.settle()
    return world


def revisions(world: InferenceWorld) -> dict[str, str]:
    """Budget → the revision that it selects."""
    return {
        name: budget["spec"]["selector"]["matchLabels"]["slipway.dev/revision"]
        for name, budget in world.budgets.items()
    }


def serving(world: InferenceWorld, arm: str) -> str:
    entries = world.inference["status"]["predictors"]
    return next(str(entry["revision"]) for entry in entries if entry["name"] == arm)


def test_predictor_has_a_budget_of_its_serving_revision_when_it_always_has_two_replicas() -> None:
    world = settled(predictor("stable", "v1", autoScale=TWO_TO_FOUR), predictor("new", "v2"))
    assert revisions(world) == {"digits-stable": serving(world, "stable")}
    (budget,) = world.budgets.values()
    assert budget["spec"]["maxUnavailable"] == 1
    (owner,) = budget["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["controller"]) == ("Inference", "digits", True)


@pytest.mark.parametrize("scaling", [{}, {"maxReplicas": 9}, {"minReplicas": 0, "maxReplicas": 9}])
def test_predictor_has_no_budget_when_it_may_have_one_replica(scaling: Any) -> None:
    assert not settled(predictor("stable", "v1", autoScale=scaling)).budgets


def test_budget_selects_the_old_revision_until_the_new_one_is_proven() -> None:
    world = settled(predictor("stable", "v1", autoScale=TWO_TO_FOUR))
    before = serving(world, "stable")
    world.broken.add("v2")
    world.edit(predictor("stable", "v2", autoScale=TWO_TO_FOUR))
    world.settle()
    assert revisions(world) == {"digits-stable": before}
    world.broken.clear()
    world.settle()
    assert serving(world, "stable") != before
    assert revisions(world) == {"digits-stable": serving(world, "stable")}


def test_budget_is_removed_when_one_replica_suffices() -> None:
    world = settled(predictor("stable", "v1", autoScale=TWO_TO_FOUR))
    assert world.budgets
    world.edit(predictor("stable", "v1", autoScale={"minReplicas": 1, "maxReplicas": 4}))
    world.plan()
    assert not world.budgets


def test_budget_of_a_removed_arm_is_kept_while_the_arm_gets_traffic() -> None:
    world = settled(predictor("stable", "v1", autoScale=TWO_TO_FOUR))
    before = revisions(world)
    world.unready.add("v2")
    world.edit(predictor("other", "v2"))
    world.settle()
    assert revisions(world) == before
    world.unready.clear()
    world.settle()
    assert not world.budgets


def test_budgets_are_deleted_with_their_inference() -> None:
    world = settled(predictor("stable", "v1", autoScale=TWO_TO_FOUR))
    world.inference["metadata"]["deletionTimestamp"] = NOW
    world.plan()
    assert world.budgets, "the replicas drain first"
    world.served = {}
    world.plan()
    assert not world.budgets


def test_no_budget_is_planned_when_the_api_serves_none() -> None:
    world = InferenceWorld(predictor("stable", "v1", autoScale=TWO_TO_FOUR))
    planned = planner.plan(world.now(budgets=None), NOW).actions
    kinds_written = [action.kind for action in planned if isinstance(action, Ensure)]
    assert kinds.DEPLOYMENT in kinds_written
    assert kinds.POD_DISRUPTION_BUDGET not in kinds_written


@pytest.mark.parametrize(("least", "is_reported"), [(1, False), (2, True)])
def test_refused_budget_is_a_condition_when_the_predictor_needs_it(least: int, *, is_reported: bool) -> None:
    world = settled(predictor("stable", "v1", autoScale=TWO_TO_FOUR))
    world.edit(predictor("stable", "v1", autoScale={"minReplicas": least, "maxReplicas": 4}))
    refusal = StatusReason("PodDisruptionBudgetRefused", "PodDisruptionBudget digits-stable was refused: no")
    world.seen["children_refused"] = {(kinds.POD_DISRUPTION_BUDGET, "digits-stable"): refusal}
    world.settle()
    condition = conditions.find(world.inference["status"]["conditions"], "DisruptionsLimited")
    assert (condition is not None) == is_reported

"""An Inference's status: conditions, the state of every arm, the address and the effective split.

`Ready` speaks of the newest spec: while a new revision is being proven (or has failed) it is False with that
reason, and its message names the revision that serves meanwhile. Traffic does not depend on it.
"""

from collections.abc import Mapping, Sequence
from typing import Literal

from serving.objects import Object
from serving.planning.inference import arms as arms_
from serving.planning.inference import children, replicas
from serving.planning.inference.arms import Arm
from serving.planning.inference.observed import Problem, World
from serving.planning.inference.revision import autoscaler_name
from serving.resources import conditions
from serving.resources.conditions import Condition
from serving.resources.events import EventToEmit

_PASSING = (
    "Ready", "ModelVersionBuilding", "ReplicasNotReady", "RouteNotAccepted", "Probing", "NoTraffic",
    replicas.SCALED_TO_ZERO, replicas.WAKING,
)  # fmt: skip
"""Reasons of `Ready` that pass by themselves while all is well; others are worth a warning."""
_AT_FIRST = {"status": "False", "reason": "NoTraffic"}
"""`Ready` of an Inference that has no status yet."""


def status(world: World, arms: Sequence[Arm], now: str) -> Object:
    """Return the whole status to write; equal to the one there is where nothing has changed.

    Args:
        world: as it is once the plan's actions are done.
        arms: as they stand then.
        now: RFC 3339.
    """
    old = world.inference.get("status") or {}
    generation = world.inference["metadata"].get("generation", 1)
    percent = effective_percent(world)
    parts = [_model_ready(arms), _predictors_ready(world, arms), _routes_ready(world)]
    at_zero = [_at_zero(world, arm) for arm in arms]
    reason = replicas.SCALED_TO_ZERO if at_zero and all(at_zero) else "Ready"
    found = [conditions.aggregate(parts, ready_reason=reason), *parts, _scaling_active(world, arms)]
    return {
        "url": _url(world),
        "predictors": [_predictor(world, arm, percent.get(arm.predictor.name, 0.0)) for arm in arms],
        "traffic": ", ".join(f"{arm} {percent[arm]:g}%" for arm in _in_spec_order(arms, percent)),
        "observedGeneration": generation,
        "conditions": conditions.merge(old.get("conditions"), found, generation=generation, now=now),
    }


def may_wait(world: World, arms: Sequence[Arm], said: Object) -> bool:
    """Whether a status only says that things are on their way, so that it need not be written before it lasts.

    Never True for what somebody waits for or must act on, nor for the proof of an arm that the Route does not keep.

    Args:
        world: as it is once the plan's actions are done, with the status as it is stored.
        arms: as they stand then.
        said: the status to be written.
    """
    old = world.inference.get("status") or {}
    if _is_news_of_routes(old.get("conditions"), said["conditions"]):
        return False
    if _is_waking(old, said):
        return True
    parts = [c for c in said["conditions"] if c["type"] != "ScalingActive" and c["status"] != "True"]
    reasons = {part["reason"] for part in [*parts, *said["predictors"]]}
    kept = arms_.serving_backends(world)
    return (
        any(part["type"] == "Ready" for part in parts)
        and reasons <= set(_PASSING)
        and all(kept.get(arm.predictor.name, "") == arm.serving for arm in arms)
    )


def _is_waking(old: Object, new: Object) -> bool:
    """Whether all is Ready as before, and an arm is on its way from zero: most are there before anybody reads it."""
    is_kept = old.get("observedGeneration") == new["observedGeneration"] and all(
        (conditions.find(found.get("conditions"), "Ready") or {}).get("status") == "True"
        for found in (old, new)
    )
    return is_kept and any(arm["reason"] == replicas.WAKING for arm in new["predictors"])


def _is_news_of_routes(old: Sequence[Object] | None, new: Sequence[Object]) -> bool:
    """Whether a changed spec's weights have just come into effect, which may be long before all of it is Ready."""
    before, after = (conditions.find(found, "RoutesReady") or {} for found in (old, new))
    is_kept = before.get("status") == after.get("status") == "True"
    return is_kept and before.get("observedGeneration") != after.get("observedGeneration")


def refused(inference: Object, problem: Problem, now: str) -> Object:
    """Return the status of an Inference that cannot be planned at all; what it had is kept beside it."""
    old = inference.get("status") or {}
    generation = inference["metadata"].get("generation", 1)
    ready = [Condition("Ready", "False", problem.reason, problem.message)]
    merged = conditions.merge(old.get("conditions"), ready, generation=generation, now=now)
    return {**old, "observedGeneration": generation, "conditions": merged}


def transitions(old: Object, new: Object) -> tuple[EventToEmit, ...]:
    """Return the Events for what changed between two statuses as they are stored.

    `Ready` is announced when it turns, and while False when something goes wrong or is mended; how things that are on
    their way get on stands in the status.
    """
    before = conditions.find(old.get("conditions"), "Ready") or _AT_FIRST
    after = conditions.find(new.get("conditions"), "Ready") or {}
    proven = _newly_proven(old, new)
    result = [
        EventToEmit("RevisionProven", f"predictor {arm}: revision {revision} is proven and serves")
        for arm, revision in proven.items()
    ]
    reason = str(after.get("reason"))
    is_same = (before["status"], before["reason"]) == (after.get("status"), reason)
    is_on_its_way = before["status"] == after.get("status") and {before["reason"], reason} <= set(_PASSING)
    if is_same or is_on_its_way:
        return tuple(result)
    if after.get("status") == "True":
        named = "".join(f"; {arm}: revision {revision}" for arm, revision in proven.items())
        return (EventToEmit(reason, f"all predictors are proven and routed{named}"),)
    event_type: Literal["Normal", "Warning"] = "Normal" if reason in _PASSING else "Warning"
    return (EventToEmit(reason, str(after.get("message", "")), event_type), *result)


def _newly_proven(old: Object, new: Object) -> dict[str, str]:
    """Return arm → revision, where that is another one than before."""
    had = {predictor["name"]: predictor.get("revision", "") for predictor in old.get("predictors") or []}
    has = {predictor["name"]: predictor.get("revision", "") for predictor in new.get("predictors") or []}
    return {arm: revision for arm, revision in has.items() if revision and revision != had.get(arm, "")}


def effective_percent(world: World) -> dict[str, float]:
    """Return arm → percent as the first live gateway that knows says, else as the Route asks."""
    if world.route is None:
        return {}
    for gateway in (world.route.get("status") or {}).get("gateways") or []:
        if gateway["name"] in world.gateways and gateway.get("weights"):
            return {w["arm"]: round(w["percent"], 2) for w in gateway["weights"] if w["percent"] > 0}
    spec = world.route["spec"]
    arm_of = {backend["name"]: backend["arm"] for backend in spec.get("backends") or []}
    result: dict[str, float] = {}
    for segment in spec.get("segments") or []:
        arm = arm_of[segment["backend"]]
        result[arm] = round(result.get(arm, 0.0) + segment["size"] / 100, 2)
    return result


def _in_spec_order(arms: Sequence[Arm], percent: Mapping[str, float]) -> list[str]:
    """Return the arms with traffic: those of the spec as it has them, then those on their way out."""
    named = [arm.predictor.name for arm in arms if arm.predictor.name in percent]
    return named + [name for name in percent if name not in named]


def _predictor(world: World, arm: Arm, percent: float) -> Object:
    problem = _problem(world, arm) or _at_zero(world, arm)
    counted = world.deployments.get(arm.serving) if arm.serving else None
    if counted is None and arm.wanted is not None:
        counted = world.deployments.get(arm.wanted.name)
    found = (counted or {}).get("status") or {}
    return {
        "name": arm.predictor.name,
        "modelVersion": arm.predictor.model_version,
        "revision": arm.serving,
        "candidateRevision": arm.candidate.name if arm.candidate is not None else "",
        "replicas": found.get("replicas", 0),
        "readyReplicas": found.get("readyReplicas", 0),
        "trafficPercent": percent,
        "reason": problem.reason if problem else "Ready",
        "message": problem.message if problem else "",
    }


def _problem(world: World, arm: Arm) -> Problem | None:
    if arm.model_problem is not None:
        return arm.model_problem
    if arm.rollout_problem is not None:
        return arm.rollout_problem
    return None if _at_zero(world, arm) else replicas.problem(world, arm.serving, everything=False)


def _at_zero(world: World, arm: Arm) -> Problem | None:
    """Return in what state an arm is that has no ready replica and needs none; None for all others."""
    if not arm.serving or not children.is_on_demand(world, arm.predictor.auto_scale, arm.serving):
        return None
    return replicas.at_zero(world, arm.serving)


def _model_ready(arms: Sequence[Arm]) -> Condition:
    found = {arm.predictor.name: arm.model_problem for arm in arms if arm.model_problem is not None}
    return _condition("ModelReady", found, "ModelVersionsReady")


def _predictors_ready(world: World, arms: Sequence[Arm]) -> Condition:
    found: dict[str, Problem] = {}
    for arm in arms:
        problem = _problem(world, arm)
        if problem is None:
            continue
        if arm.serving and arm.model_problem is None and arm.rollout_problem is not None:
            problem = Problem(problem.reason, f"{problem.message}; revision {arm.serving} serves")
        found[arm.predictor.name] = problem
    return _condition("PredictorsReady", found, "AllProven")


def _condition(type_: str, found: Mapping[str, Problem], reason: str) -> Condition:
    if not found:
        return Condition(type_, "True", reason)
    first = next(iter(found.values()))
    message = "; ".join(f"predictor {name}: {problem.message}" for name, problem in found.items())
    return Condition(type_, "False", first.reason, message)


def _routes_ready(world: World) -> Condition:
    def no(reason: str, message: str) -> Condition:
        return Condition("RoutesReady", "False", reason, message)

    if not world.gateways:
        return no("NoGateway", "no gateway is alive")
    behind = arms_.laggards(world)
    if behind or world.route is None:
        text = ", ".join(f"{name} ({said})" if said else name for name, said in behind.items())
        return no("RouteNotAccepted", f"not accepted yet by gateway {text}")
    if not world.route["spec"].get("segments"):
        return no("NoTraffic", "no predictor with a weight is proven yet")
    return Condition("RoutesReady", "True", "Accepted")


def _scaling_active(world: World, arms: Sequence[Arm]) -> Condition:
    """Say whether every arm is being sized; `Ready` does not depend on it, as replicas run without."""
    inference = world.inference["metadata"]["name"]
    for arm in arms:
        autoscaler = world.autoscalers.get(autoscaler_name(inference, arm.predictor.name))
        ready = conditions.find(((autoscaler or {}).get("status") or {}).get("conditions"), "Ready")
        if ready is None:
            message = f"predictor {arm.predictor.name} has not been sized yet"
            return Condition("ScalingActive", "Unknown", "NotReported", message)
        if ready["status"] != "True":
            message = f"predictor {arm.predictor.name}: {ready.get('message', '')}"
            return Condition("ScalingActive", ready["status"], ready["reason"], message)
    return Condition("ScalingActive", "True", "Sized")


def _url(world: World) -> str:
    meta = world.inference["metadata"]
    gateways = ((world.route or {}).get("status") or {}).get("gateways") or []
    for gateway in gateways:
        if gateway["name"] in world.gateways and gateway.get("address"):
            return f"http://{gateway['address']}/{meta['namespace']}/{meta['name']}"
    return str((world.inference.get("status") or {}).get("url", ""))

"""An Inference's status: conditions, the state of every arm, the address and the effective split.

`Ready` describes the newest spec: while a new revision is being proven (or has failed) it is False with that
reason, and its message names the revision that serves meanwhile. Traffic does not depend on it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

from serving.objects import Object
from serving.planning.gpu.mechanism import AUTO
from serving.planning.inference import children, prefetch, replicas
from serving.planning.inference.arms import Arm
from serving.planning.inference.inference_state import InferenceState
from serving.planning.inference.replicas import RevisionReplicas
from serving.planning.inference.revision import Revision, autoscaler_name
from serving.resources import kinds, names
from serving.resources.kubernetes import conditions
from serving.resources.kubernetes.conditions import Condition, StatusReason
from serving.resources.kubernetes.events import EventToEmit

_PROGRESSING = frozenset(
    {
        "Ready",
        "ModelVersionBuilding",
        "ReplicasNotReady",
        "RouteNotAccepted",
        "Probing",
        "NoTraffic",
        replicas.SCALED_TO_ZERO,
        replicas.WAKING,
    }
)
"""Reasons of `Ready` that report progress; every other reason is a warning."""
_SCALING = "ScalingActive"
_PREFETCHED = "Prefetched"
_BUDGETED = "DisruptionsLimited"
_ASIDE = (_SCALING, _PREFETCHED, _BUDGETED)
"""Conditions on which `Ready` does not depend."""
_INITIAL_READY = {"status": "False", "reason": "NoTraffic"}
"""`Ready` of an Inference that has no status yet."""


def render(state: InferenceState, arms: Sequence[Arm], now: str) -> Object:
    """Return the whole status; equal to the stored one if nothing has changed.

    Args:
        state: as of after the plan's writes.
        arms: as of after the plan's writes.
        now: RFC 3339.
    """
    inference = state.observed.inference
    stored = (inference.get("status") or {}).get("conditions")
    generation = inference["metadata"].get("generation", 1)
    percent = effective_percent(state)
    parts = [_model_ready(state, arms), _predictors_ready(state, arms), _routes_ready(state)]
    at_zero = [_at_zero(state, arm) for arm in arms]
    ready_reason = replicas.SCALED_TO_ZERO if at_zero and all(at_zero) else "Ready"
    aggregate = conditions.aggregate(parts, ready_reason=ready_reason)
    new = [
        aggregate,
        *parts,
        _scaling_active(state, arms),
        *_prefetched(state, arms),
        *_disruptions_limited(state, arms),
    ]
    return {
        "url": _url(state),
        "predictors": [_predictor(state, arm, percent.get(arm.predictor.name, 0.0)) for arm in arms],
        "traffic": ", ".join(f"{arm} {percent[arm]:g}%" for arm in _in_spec_order(arms, percent)),
        "observedGeneration": generation,
        "conditions": conditions.merge(stored, new, generation=generation, now=now),
    }


def may_wait(state: InferenceState, arms: Sequence[Arm], new: Object) -> bool:
    """Whether a status only reports progress, so that it need not be written before it lasts.

    False for a status that somebody waits for or must act on, and for a status that is the only record of a
    proof. True if only the numbers of nodes with prefetched images have changed: many nodes change them.

    Args:
        state: as of after the plan's writes.
        arms: as of after the plan's writes.
        new: the status to write.
    """
    old = state.observed.inference.get("status") or {}
    if _has_new_split(old.get("conditions"), new["conditions"]):
        return False
    if _is_waking(old, new) or _without_prefetch(old) == _without_prefetch(new):
        return True
    not_true = [c for c in new["conditions"] if c["type"] not in _ASIDE and c["status"] != "True"]
    reasons = {part["reason"] for part in [*not_true, *new["predictors"]]}
    is_ready = all(condition["type"] != "Ready" for condition in not_true)
    # `state.serving` is derived from the Route and the stored status: the records of proofs. `arm.serving`
    # may be a candidate that has just been proven; without weight it is not in the Route, and this status is
    # its only record.
    is_recorded = all(state.serving.get(arm.predictor.name, "") == arm.serving for arm in arms)
    # Somebody may wait for Ready, so a Ready status is written at once.
    return not is_ready and reasons <= _PROGRESSING and is_recorded


def _without_prefetch(status: Object) -> Object:
    arms = [
        {field: value for field, value in arm.items() if field != "prefetch"}
        for arm in status.get("predictors") or []
    ]
    others = [c for c in status.get("conditions") or [] if c["type"] != _PREFETCHED]
    return {**status, "predictors": arms, "conditions": others}


def _is_waking(old: Object, new: Object) -> bool:
    """Whether an arm wakes from zero while `Ready` stays True: mostly too short to report."""
    stays_ready = old.get("observedGeneration") == new["observedGeneration"] and all(
        (conditions.find(status.get("conditions"), "Ready") or {}).get("status") == "True"
        for status in (old, new)
    )
    return stays_ready and any(arm["reason"] == replicas.WAKING for arm in new["predictors"])


def _has_new_split(old: Sequence[Object] | None, new: Sequence[Object]) -> bool:
    """Whether a changed spec's weights have just come into effect, possibly long before `Ready`."""
    before, after = (conditions.find(stored, "RoutesReady") or {} for stored in (old, new))
    stays_true = before.get("status") == after.get("status") == "True"
    return stays_true and before.get("observedGeneration") != after.get("observedGeneration")


def refused(inference: Object, reason: StatusReason, now: str) -> Object:
    """Return the status of an Inference that cannot be planned; the rest of its status is kept."""
    old = inference.get("status") or {}
    stored = old.get("conditions") or []
    generation = inference["metadata"].get("generation", 1)
    ready = [Condition("Ready", "False", reason.reason, reason.message)]
    merged = conditions.merge(stored, ready, generation=generation, now=now)
    others = [condition for condition in stored if condition["type"] != "Ready"]
    return {**old, "observedGeneration": generation, "conditions": [*merged, *others]}


def events(old: Object, new: Object) -> tuple[EventToEmit, ...]:
    """Return the Events for the difference between two stored statuses.

    `Ready` gets an Event when its status changes and, while it is False, when a reason other than progress
    comes or goes.
    """
    before = conditions.find(old.get("conditions"), "Ready") or _INITIAL_READY
    after = conditions.find(new.get("conditions"), "Ready") or {}
    proven = _newly_proven(old, new)
    proven_events = [
        EventToEmit("RevisionProven", f"predictor {arm}: revision {revision} is proven and serves")
        for arm, revision in proven.items()
    ]
    reason = str(after.get("reason"))
    is_same = (before["status"], before["reason"]) == (after.get("status"), reason)
    is_progress = before["status"] == after.get("status") and {before["reason"], reason} <= _PROGRESSING
    if is_same or is_progress:
        return tuple(proven_events)
    if after.get("status") == "True":
        revisions = "".join(f"; {arm}: revision {revision}" for arm, revision in proven.items())
        return (EventToEmit(reason, f"all predictors are proven and routed{revisions}"),)
    event_type: Literal["Normal", "Warning"] = "Normal" if reason in _PROGRESSING else "Warning"
    return (EventToEmit(reason, str(after.get("message", "")), event_type), *proven_events)


def _newly_proven(old: Object, new: Object) -> dict[str, str]:
    """Return arm → serving revision, of the arms whose serving revision changed."""
    before = {predictor["name"]: predictor.get("revision", "") for predictor in old.get("predictors") or []}
    after = {predictor["name"]: predictor.get("revision", "") for predictor in new.get("predictors") or []}
    return {arm: revision for arm, revision in after.items() if revision and revision != before.get(arm, "")}


def effective_percent(state: InferenceState) -> dict[str, float]:
    """Return arm → percent of traffic, from the first live gateway's report, else from the Route."""
    for gateway in state.gateway_statuses.values():
        if gateway.get("weights"):
            return {w["arm"]: round(w["percent"], 2) for w in gateway["weights"] if w["percent"] > 0}
    percent: dict[str, float] = {}
    for segment in state.segments:
        arm = state.backends[segment["backend"]]["arm"]
        percent[arm] = round(percent.get(arm, 0.0) + segment["size"] / 100, 2)
    return percent


def _in_spec_order(arms: Sequence[Arm], percent: Mapping[str, float]) -> list[str]:
    """Return the arms with traffic: arms of the spec in its order, then removed arms."""
    in_spec = [arm.predictor.name for arm in arms if arm.predictor.name in percent]
    return in_spec + [name for name in percent if name not in in_spec]


def _predictor(state: InferenceState, arm: Arm, percent: float) -> Object:
    """Return the entry of an arm in `status.predictors`; `percent` is its share of the traffic."""
    reason = _problem(state, arm) or _at_zero(state, arm)
    counts = state.replicas.get(arm.serving)
    if counts is None and arm.desired is not None:
        counts = state.replicas.get(arm.desired.name)
    counts = counts or RevisionReplicas()
    covered = prefetch.coverage(state, arm)
    fetched = (
        {} if covered is None else {"prefetch": {"nodes": covered.nodes, "readyNodes": covered.ready_nodes}}
    )
    return {
        "name": arm.predictor.name,
        "modelVersion": arm.predictor.model_version,
        "revision": arm.serving,
        "candidateRevision": arm.candidate.name if arm.candidate is not None else "",
        "replicas": counts.existing,
        "readyReplicas": counts.ready,
        "trafficPercent": percent,
        **fetched,
        **_gpu(arm),
        "reason": reason.reason if reason else "Ready",
        "message": reason.message if reason else "",
    }


def _gpu(arm: Arm) -> Object:
    """Return the field `gpu` of an arm's entry; empty unless its mechanism is chosen."""
    gpu, choice, revision = arm.predictor.resources.gpu, arm.mechanism, arm.desired
    if gpu is None or gpu.mechanism != AUTO or choice is None or revision is None:
        return {}
    message = choice.reason
    if revision.mechanism != choice.mechanism:
        message = f"kept until the next revision, which gets {choice.mechanism} ({choice.reason})"
    return {"gpu": {"mechanism": revision.mechanism, "message": message}}


def _problem(state: InferenceState, arm: Arm) -> StatusReason | None:
    """Return why an arm is not ready, or None."""
    if arm.model_problem is not None:
        return arm.model_problem
    if arm.rollout_problem is not None:
        return arm.rollout_problem
    if _at_zero(state, arm):
        return None
    return replicas.problem(arm.serving, state.replicas.get(arm.serving), all_ready=False)


def _while_serving(arm: Arm, problem: StatusReason) -> StatusReason:
    """Return a problem of the newest spec with the revision that serves meanwhile, if there is one."""
    if not arm.serving:
        return problem
    return StatusReason(problem.reason, f"{problem.message}; revision {arm.serving} serves")


def _at_zero(state: InferenceState, arm: Arm) -> StatusReason | None:
    """Return the state of an arm that has no ready replica and needs none; None for every other arm."""
    if not arm.serving or not state.is_on_demand(arm.serving, arm.predictor.auto_scale):
        return None
    return replicas.at_zero(arm.serving, state.replicas.get(arm.serving))


def _model_ready(state: InferenceState, arms: Sequence[Arm]) -> Condition:
    problems = {
        arm.predictor.name: _while_serving(arm, arm.model_problem)
        for arm in arms
        if arm.model_problem is not None
    }
    if problems:
        return _condition("ModelReady", problems, "ModelVersionsReady")
    volumes = {arm.predictor.name: _volume(state, arm.desired) for arm in arms if arm.desired is not None}
    message = "; ".join(f"predictor {name}: {text}" for name, text in volumes.items() if text)
    return Condition("ModelReady", "True", "ModelVersionsReady", message)


def _volume(state: InferenceState, revision: Revision) -> str:
    """Return the source of a revision's model files, and the reason of the source that new revisions get;
    empty if both are image volumes.
    """
    choice = state.observed.model_volume
    if revision.volume == choice.source == "image":
        return ""
    source = "an init container copies the model" if revision.volume == "copy" else "an image volume"
    kept = "" if revision.volume == choice.source else ", until its next revision"
    return f"{source}{kept} ({choice.reason})"


def _predictors_ready(state: InferenceState, arms: Sequence[Arm]) -> Condition:
    problems: dict[str, StatusReason] = {}
    for arm in arms:
        problem = _problem(state, arm)
        if problem is None:
            continue
        is_of_spec = arm.model_problem is not None or arm.rollout_problem is not None
        problems[arm.predictor.name] = _while_serving(arm, problem) if is_of_spec else problem
    return _condition("PredictorsReady", problems, "AllProven")


def _condition(type_: str, problems: Mapping[str, StatusReason], reason: str) -> Condition:
    """Return a condition that is False with the arms' problems, or True with `reason` if there are none."""
    if not problems:
        return Condition(type_, "True", reason)
    first = next(iter(problems.values()))
    message = "; ".join(f"predictor {name}: {problem.message}" for name, problem in problems.items())
    return Condition(type_, "False", first.reason, message)


def _routes_ready(state: InferenceState) -> Condition:
    def not_ready(reason: str, message: str) -> Condition:
        return Condition("RoutesReady", "False", reason, message)

    refused = state.observed.children_refused.get((kinds.ROUTE, state.name))
    if refused is not None:
        return not_ready(refused.reason, refused.message)
    if not state.observed.gateways:
        return not_ready("NoGateway", "no gateway is alive")
    if state.observed.gateways <= state.observed.gateway_problems.keys():
        reasons = (
            f"gateway {name}: {text}" for name, text in sorted(state.observed.gateway_problems.items())
        )
        return not_ready("GatewayNotServing", "; ".join(reasons))
    if state.lagging:
        gateways = (f"{name} ({text})" if text else name for name, text in state.lagging.items())
        return not_ready("RouteNotAccepted", f"not accepted yet by gateway {', '.join(gateways)}")
    if not state.segments:
        return not_ready("NoTraffic", "no predictor with a weight is proven yet")
    return Condition("RoutesReady", "True", "Accepted")


def _scaling_active(state: InferenceState, arms: Sequence[Arm]) -> Condition:
    """Return whether every arm is being scaled, with the standby replicas that a cluster does not keep;
    `Ready` does not depend on it.
    """
    sized = _sized(state, arms)
    messages = [sized.message] if sized.message else []
    if state.observed.is_of_cluster:
        messages += [
            f"predictor {arm.predictor.name}: autoScale.standby is {arm.predictor.auto_scale.standby}, and"
            " has no effect on a cluster, which keeps no standby replicas"
            for arm in arms
            if arm.predictor.auto_scale.standby
        ]
    return replace(sized, message="; ".join(messages))


def _sized(state: InferenceState, arms: Sequence[Arm]) -> Condition:
    """Return `ScalingActive`: False or Unknown with the first arm that is not being scaled."""
    for arm in arms:
        name = arm.predictor.name
        child = autoscaler_name(state.name, name)
        refused = state.observed.children_refused.get((kinds.AUTOSCALER, child))
        if refused is not None:
            return Condition(_SCALING, "False", refused.reason, f"predictor {name}: {refused.message}")
        autoscaler = state.observed.autoscalers.get(child) or {}
        ready = conditions.find((autoscaler.get("status") or {}).get("conditions"), "Ready")
        if ready is None:
            message = f"predictor {name} has not been sized yet"
            return Condition(_SCALING, "Unknown", "NotReported", message)
        if ready["status"] != "True":
            message = f"predictor {name}: {ready.get('message', '')}"
            return Condition(_SCALING, ready["status"], ready["reason"], message)
    return Condition(_SCALING, "True", "Sized")


def _prefetched(state: InferenceState, arms: Sequence[Arm]) -> list[Condition]:
    """Return whether the nodes have the images of the newest revisions; empty where no arm asks for it."""
    asking = [arm for arm in arms if arm.predictor.prefetch]
    if not asking:
        return []
    if state.observed.daemon_sets is None:
        message = "the API has no DaemonSets: all Pods of one machine have the same model store"
        return [Condition(_PREFETCHED, "True", "NotNeeded", message)]
    problems = {arm.predictor.name: prefetch.problem(state, arm) for arm in asking}
    lacking = {name: problem for name, problem in problems.items() if problem is not None}
    return [_condition(_PREFETCHED, lacking, "AllNodes")]


def _disruptions_limited(state: InferenceState, arms: Sequence[Arm]) -> list[Condition]:
    """Return that an arm lacks its PodDisruptionBudget; empty where none does.

    A budget that no arm needs may be refused too: its deletion, of which there is an Event.
    """
    problems: dict[str, StatusReason] = {}
    for budget in children.disruption_budgets(state, arms):
        meta = budget.object["metadata"]
        problem = state.observed.children_refused.get((kinds.POD_DISRUPTION_BUDGET, meta["name"]))
        if problem is not None:
            problems[meta["labels"][names.PREDICTOR_LABEL]] = problem
    return [_condition(_BUDGETED, problems, "")] if problems else []


def _url(state: InferenceState) -> str:
    inference = state.observed.inference
    for gateway in state.gateway_statuses.values():
        if gateway.get("address"):
            return f"http://{gateway['address']}/{inference['metadata']['namespace']}/{state.name}"
    return str((inference.get("status") or {}).get("url", ""))

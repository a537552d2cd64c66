"""Plans the next writes for one Inference; the controller carries them out.

The order of the steps keeps requests from failing. A revision is created, announced to every gateway, probed,
and only then named in the ring. A backend that the ring no longer names stays until every gateway has
accepted that; then it leaves the Route and, once that is accepted too, its children are deleted.
"""

from pydantic import ValidationError

from serving.objects import is_deleting
from serving.planning.inference import arms as arms_
from serving.planning.inference import children, inference_state, prefetch, removal, route, status
from serving.planning.inference.comparison import drift, template_edits
from serving.planning.inference.observed import ObservedObjects
from serving.planning.inference.plan import Action, InferencePlan, SetFinalizers
from serving.planning.inference.revision import is_usable_name
from serving.resources import engine, kinds
from serving.resources.inference import InferenceSpec
from serving.resources.kubernetes.conditions import StatusReason

FINALIZER = "slipway.dev/inference"
"""Holds an Inference until its Route, and then its replicas, have been deleted."""


def plan(observed: ObservedObjects, now: str) -> InferencePlan:
    """Return the plan; `now` (RFC 3339) becomes the transition time of conditions that change."""
    inference = observed.inference
    meta = inference["metadata"]
    if is_deleting(inference):
        return _plan_deletion(observed)
    if not is_usable_name(meta["name"]):
        message = f"{meta['name']} is not a DNS label of at most 63 characters that begins with a letter"
        return _refuse(observed, StatusReason("InvalidName", message), now)
    try:
        spec = InferenceSpec.model_validate(inference["spec"])
    except ValidationError as error:
        first = error.errors()[0]
        path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"])
        return _refuse(observed, StatusReason("InvalidSpec", f"spec{path}: {first['msg']}"), now)
    if problem := engine.unknown(spec.framework, observed.engines):
        return _refuse(observed, StatusReason("UnknownFramework", problem), now)
    return _plan_changes(observed, spec, now)


def _refuse(observed: ObservedObjects, reason: StatusReason, now: str) -> InferencePlan:
    stored = observed.inference.get("status") or {}
    new = status.refused(observed.inference, reason, now)
    return InferencePlan(status=new if new != stored else None, events=status.events(stored, new))


def _plan_changes(observed: ObservedObjects, spec: InferenceSpec, now: str) -> InferencePlan:
    state = inference_state.derive(observed)
    arms = arms_.read(state, spec)
    desired_route = route.render(state, spec, arms)
    budgets = children.disruption_budgets(state, arms)
    desired = [
        *children.revisions(state, arms),
        *children.autoscalers(state, arms),
        desired_route,
        *budgets,
        # After all that serves: an API that refuses DaemonSets must hold nothing up.
        *prefetch.daemon_sets(state, arms),
    ]
    # The probe of an edited revision leaves the Route first: an edited replica may answer it.
    still_probed = {
        arm.candidate.name
        for arm in arms
        if arm.candidate is not None
        and arm.edit is not None
        and "probe" in state.backends.get(arm.candidate.name, {})
    }
    due = [
        ensure
        for ensure in desired
        if ensure.kind is not kinds.DEPLOYMENT or ensure.object["metadata"]["name"] not in still_probed
    ]
    put_back = [template_edits.put_back(observed, ensure) for ensure in due]
    writes = [
        ensure
        for ensure in due
        if not observed.is_refused(ensure.kind, ensure.object["metadata"]["name"])
        and drift.differs(observed, ensure)
    ]
    removals = [
        *removal.candidates_at_zero(state, arms),
        *removal.retired(state, arms, desired_route),
        *removal.unneeded_budgets(state, arms, desired_route, budgets),
        *removal.unneeded_prefetches(state, arms, desired_route),
    ]
    actions: list[Action] = [
        *_ensure_finalizer(observed),
        *(action for action in put_back if action is not None),
        *writes,
        *(child for child in removals if not observed.is_refused(child.kind, child.name)),
    ]
    # The status is that after the writes: a candidate whose Route they change waits for the gateways to
    # accept the Route, and no longer for its probes.
    after = state.after(writes)
    arms_after = [arm.once_routed(is_accepted=after.is_accepted) for arm in arms]
    stored = observed.inference.get("status") or {}
    new = status.render(after, arms_after, now)
    return InferencePlan(
        actions=tuple(actions),
        status=new if new != stored else None,
        status_may_wait=status.may_wait(after, arms_after, new),
        waits_for_gpu_nodes=any(arm.mechanism is not None and not arm.mechanism.is_offered for arm in arms),
        events=status.events(stored, new),
    )


def _ensure_finalizer(observed: ObservedObjects) -> list[SetFinalizers]:
    finalizers = observed.inference["metadata"].get("finalizers") or []
    return [] if FINALIZER in finalizers else [SetFinalizers((*finalizers, FINALIZER))]


def _plan_deletion(observed: ObservedObjects) -> InferencePlan:
    """Delete the Route first, so that gateways send no more requests, then the replicas, then the finalizer.

    With `--cascade=orphan` the children remain. With `--cascade=foreground` the Inference remains until its
    Pods are gone.
    """
    finalizers = observed.inference["metadata"].get("finalizers") or []
    if FINALIZER not in finalizers:
        return InferencePlan()
    release = SetFinalizers(tuple(name for name in finalizers if name != FINALIZER))
    if "orphan" in finalizers:
        return InferencePlan(actions=(release,))
    if observed.route is not None:
        return InferencePlan(actions=tuple(removal.of_route(observed.route)))
    replicas = removal.of_replicas(observed, foreground="foregroundDeletion" in finalizers)
    return InferencePlan(actions=(*replicas, release))

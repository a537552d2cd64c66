"""The children of an Inference that may be deleted, as no gateway sends to them any more."""

from collections.abc import Iterable, Sequence

from serving.objects import Object, is_deleting
from serving.planning.inference.arms import Arm
from serving.planning.inference.inference_state import InferenceState
from serving.planning.inference.observed import ObservedObjects
from serving.planning.inference.plan import Ensure, RemoveChild
from serving.planning.inference.revision import autoscaler_name
from serving.resources import kinds
from serving.resources.kinds import Kind


def candidates_at_zero(state: InferenceState, arms: Iterable[Arm]) -> list[RemoveChild]:
    """Return the deletions of candidates at zero, which no controller would start again.

    Such a revision served, was scaled to zero and replaced, and is desired again before it was retired. The
    next plan creates it with replicas. Without a serving revision the Autoscaler of the
    arm scales the candidate itself.
    """
    names = [arm.candidate.name for arm in arms if arm.serving and arm.candidate is not None]
    at_zero = [name for name in names if name in state.replicas and not state.replicas[name].desired]
    return _removals(kinds.DEPLOYMENT, [state.observed.deployments[name] for name in at_zero])


def retired(state: InferenceState, arms: Sequence[Arm], route: Ensure) -> list[RemoveChild]:
    """Return the deletions of children that neither an arm nor a Route, stored or desired (`route`), needs.

    Nothing is retired until every live gateway has accepted the stored Route. A blocked arm needs no
    Autoscaler, as it has no revision to scale.
    """
    observed = state.observed
    if observed.route is None or not state.is_accepted:
        return []
    backends = [*state.backends.values(), *route.object["spec"]["backends"]]
    revisions = {backend["name"] for backend in backends}
    revisions |= {arm.desired.name for arm in arms if arm.desired is not None}
    arm_names = {backend["arm"] for backend in backends}
    arm_names |= {arm.predictor.name for arm in arms if not arm.is_blocked}
    autoscalers = {autoscaler_name(state.name, name) for name in arm_names}
    unused = [
        (
            kinds.AUTOSCALER,
            [child for name, child in observed.autoscalers.items() if name not in autoscalers],
        ),
        (kinds.DEPLOYMENT, [child for name, child in observed.deployments.items() if name not in revisions]),
        (kinds.SERVICE, [child for name, child in observed.services.items() if name not in revisions]),
    ]
    return [removal for kind, children in unused for removal in _removals(kind, children)]


def unneeded_budgets(
    state: InferenceState, arms: Sequence[Arm], route: Ensure, desired: Iterable[Ensure]
) -> list[RemoveChild]:
    """Return the deletions of PodDisruptionBudgets that are not desired.

    An arm that has left the spec keeps its budget while a Route, stored or desired, has its backend.
    """
    in_spec = {arm.predictor.name for arm in arms}
    backends = [*state.backends.values(), *route.object["spec"]["backends"]]
    kept = {
        autoscaler_name(state.name, backend["arm"]) for backend in backends if backend["arm"] not in in_spec
    }
    kept |= {ensure.object["metadata"]["name"] for ensure in desired}
    budgets = (state.observed.budgets or {}).items()
    return _removals(kinds.POD_DISRUPTION_BUDGET, [budget for name, budget in budgets if name not in kept])


def unneeded_prefetches(state: InferenceState, arms: Sequence[Arm], route: Ensure) -> list[RemoveChild]:
    """Return the deletions of DaemonSets whose revision leaves, or whose arm no longer asks for them."""
    ended = {arm.predictor.name for arm in arms if not arm.predictor.prefetch}
    backends = [*state.backends.values(), *route.object["spec"]["backends"]]
    kept = {backend["name"] for backend in backends if backend["arm"] not in ended}
    kept |= {arm.desired.name for arm in arms if arm.predictor.prefetch and arm.desired is not None}
    daemon_sets = (state.observed.daemon_sets or {}).items()
    return _removals(kinds.DAEMON_SET, [stored for name, stored in daemon_sets if name not in kept])


def of_route(route: Object) -> list[RemoveChild]:
    """Return the deletion of an Inference's Route."""
    return _removals(kinds.ROUTE, [route])


def of_replicas(observed: ObservedObjects, *, foreground: bool) -> list[RemoveChild]:
    """Return the deletions of all children except the Route.

    With `foreground`, Deployments are deleted after their Pods.
    """
    return [
        *_removals(kinds.AUTOSCALER, observed.autoscalers.values()),
        *_removals(kinds.POD_DISRUPTION_BUDGET, (observed.budgets or {}).values()),
        *_removals(kinds.DAEMON_SET, (observed.daemon_sets or {}).values()),
        *_removals(kinds.DEPLOYMENT, observed.deployments.values(), foreground=foreground),
        *_removals(kinds.SERVICE, observed.services.values()),
    ]


def _removals(kind: Kind, objects: Iterable[Object], *, foreground: bool = False) -> list[RemoveChild]:
    return [
        RemoveChild(kind, child["metadata"]["name"], child["metadata"]["uid"], foreground)
        for child in objects
        if not is_deleting(child)
    ]

"""Which children of an Inference may be deleted: no gateway can be sending to them any more."""

from collections.abc import Iterable, Sequence

from serving.objects import Object
from serving.planning.inference.arms import Arm
from serving.planning.inference.facts import Facts
from serving.planning.inference.observed import Observed
from serving.planning.inference.plan import Ensure, Remove
from serving.planning.inference.revision import autoscaler_name
from serving.resources import kinds
from serving.resources.kinds import Kind


def candidates_at_zero(facts: Facts, arms: Iterable[Arm]) -> list[Remove]:
    """Return the deletions of candidates that have been scaled to zero, which nothing would start again.

    Such a revision served, went to zero, was replaced, and is wanted again before it was retired. Created
    anew, it has replicas.
    """
    names = [arm.candidate.name for arm in arms if arm.serving and arm.candidate is not None]
    at_zero = [name for name in names if name in facts.replicas and not facts.replicas[name].desired]
    return _removals(kinds.DEPLOYMENT, [facts.observed.deployments[name] for name in at_zero])


def retired(facts: Facts, arms: Sequence[Arm], route: Ensure) -> list[Remove]:
    """Return the deletions of children of revisions and arms that are neither wanted nor in either Route.

    Nothing is retired until every live gateway has accepted the Route as it is.
    """
    observed = facts.observed
    if observed.route is None or not facts.is_accepted:
        return []
    backends = [*facts.backends.values(), *route.object["spec"]["backends"]]
    revisions = {backend["name"] for backend in backends}
    revisions |= {arm.wanted.name for arm in arms if arm.wanted is not None}
    arm_names = {backend["arm"] for backend in backends} | {arm.predictor.name for arm in arms}
    autoscalers = {autoscaler_name(facts.name, name) for name in arm_names}
    unused = [
        (
            kinds.AUTOSCALER,
            [child for name, child in observed.autoscalers.items() if name not in autoscalers],
        ),
        (kinds.DEPLOYMENT, [child for name, child in observed.deployments.items() if name not in revisions]),
        (kinds.SERVICE, [child for name, child in observed.services.items() if name not in revisions]),
    ]
    return [removal for kind, children in unused for removal in _removals(kind, children)]


def of_route(route: Object) -> list[Remove]:
    """Return the deletion of an Inference's Route."""
    return _removals(kinds.ROUTE, [route])


def of_replicas(observed: Observed, *, foreground: bool) -> list[Remove]:
    """Return the deletions of all children but the Route; `foreground` lets Deployments wait for their Pods."""
    return [
        *_removals(kinds.AUTOSCALER, observed.autoscalers.values()),
        *_removals(kinds.DEPLOYMENT, observed.deployments.values(), foreground=foreground),
        *_removals(kinds.SERVICE, observed.services.values()),
    ]


def _removals(kind: Kind, objects: Iterable[Object], *, foreground: bool = False) -> list[Remove]:
    return [
        Remove(kind, child["metadata"]["name"], child["metadata"]["uid"], foreground)
        for child in objects
        if not child["metadata"].get("deletionTimestamp")
    ]

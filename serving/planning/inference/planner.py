"""One Inference → what to write next. Everything is decided here; the controller only carries it out.

The order is what keeps requests from failing: a revision is created, made known to every gateway, probed, and only
then named in the ring; what the ring no longer names stays until every gateway has accepted that, then leaves
the Route, and (accepted again) is deleted.
"""

from collections.abc import Sequence
from dataclasses import replace

from pydantic import ValidationError

from serving.objects import Object
from serving.planning.inference import arms as arms_
from serving.planning.inference import children
from serving.planning.inference import status as statuses
from serving.planning.inference.arms import Arm
from serving.planning.inference.observed import (
    Action,
    Ensure,
    Plan,
    Probe,
    Problem,
    Remove,
    SetFinalizers,
    World,
    covers,
)
from serving.planning.inference.revision import autoscaler_name, is_usable_name
from serving.resources import kinds, names
from serving.resources.inference import InferenceSpec
from serving.resources.kinds import Kind

FINALIZER = "slipway.dev/inference"
"""Holds an Inference while its Route, then its replicas are removed, in this order."""


def plan(world: World, now: str) -> Plan:
    """Return what to do next for this Inference.

    Args:
        world: as the caches have it; being behind costs a retry, never a wrong deletion.
        now: RFC 3339; the transition time of conditions that change.
    """
    meta = world.inference["metadata"]
    if meta.get("deletionTimestamp"):
        return _dismantle(world)
    try:
        if not is_usable_name(meta["name"]):
            problem = Problem(
                "InvalidName",
                f"{meta['name']} is no DNS label of at most 63 characters that begins with a letter",
            )
            return Plan(status=statuses.refused(world.inference, problem, now))
        spec = InferenceSpec.model_validate(world.inference["spec"])
    except ValidationError as error:
        first = error.errors()[0]
        path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"])
        message = f"spec{path}: {first['msg']}"
        return Plan(status=statuses.refused(world.inference, Problem("InvalidSpec", message), now))
    return _assemble(world, spec, now)


def _assemble(world: World, spec: InferenceSpec, now: str) -> Plan:
    serving = arms_.serving_backends(world)
    arms = arms_.read(world, spec, serving)
    route = children.route(world, spec, arms, serving)
    wanted = [*_revisions(world, arms), *_autoscalers(world, arms)]
    actions: list[Action] = []
    finalizers = world.inference["metadata"].get("finalizers") or []
    if FINALIZER not in finalizers:
        actions.append(SetFinalizers((*finalizers, FINALIZER)))
    writes = [ensure for ensure in [*wanted, route] if _differs(world, ensure)]
    actions += [*writes, *_stranded(world, arms), *_retired(world, arms, route)]
    after = _after(world, writes)
    arms_then = arms_.judge_again(after, arms) if writes else arms
    status = statuses.status(after, arms_then, now)
    probes = [Probe(arm.candidate.name, arm.candidate.probe_paths) for arm in arms
              if arm.candidate is not None and arms_.is_probe_due(arm)]  # fmt: skip
    old = world.inference.get("status") or {}
    return Plan(
        tuple(actions),
        status if status != old else None,
        statuses.may_wait(after, arms_then, status),
        tuple(probes),
        statuses.transitions(old, status),
    )


def _after(world: World, writes: Sequence[Ensure]) -> World:
    """Return the world with these written, as far as a status can tell: Deployments that are new, and the Route."""
    deployments = dict(world.deployments)
    route = world.route
    for ensure in writes:
        spec = ensure.object["spec"]
        if ensure.kind is kinds.DEPLOYMENT:
            new = {**ensure.object, "spec": {**spec, **ensure.at_creation["spec"]}}
            deployments.setdefault(ensure.object["metadata"]["name"], new)
        elif ensure.kind is kinds.ROUTE:
            route = _written_route(route, ensure.object)
    return replace(world, deployments=deployments, route=route)


def _written_route(old: Object | None, new: Object) -> Object:
    """Return the Route as the API will have it; a changed spec is a generation that no gateway has accepted."""
    before = (old or {}).get("metadata") or {}
    generation = before.get("generation", 0) + (old is None or not _is_routed(old["spec"], new["spec"]))
    return {
        **(old or {}),
        "metadata": {**before, **new["metadata"], "generation": generation},
        "spec": new["spec"],
    }


def _revisions(world: World, arms: Sequence[Arm]) -> list[Ensure]:
    result = []
    for arm in arms:
        if arm.wanted is not None and arm.wanted.name not in world.refused:
            count = children.initial_replicas(arm, world.deployments)
            result.append(children.deployment(world, arm, arm.wanted, count))
            result.append(children.service(world, arm.wanted.name, arm, arm.wanted.port))
        if arm.serving in world.services and (arm.wanted is None or arm.wanted.name != arm.serving):
            port = children.service_port(world, arm.serving)
            result.append(children.service(world, arm.serving, arm, port))
    return result


def _stranded(world: World, arms: Sequence[Arm]) -> list[Remove]:
    """Return the deletions of candidates at zero, which nobody would start: made anew, they have replicas.

    Such a one served, went to zero, was replaced, and is wanted again before it was retired.
    """
    found = [
        world.deployments[arm.candidate.name]
        for arm in arms
        if arm.serving and arm.candidate is not None and arm.candidate.name in world.deployments
    ]
    return _removals(kinds.DEPLOYMENT, [o for o in found if o["spec"].get("replicas", 1) == 0])


def _autoscalers(world: World, arms: Sequence[Arm]) -> list[Ensure]:
    """Point each arm's Autoscaler at what serves it; before anything does, at the first revision to be proven."""
    result = []
    for arm in arms:
        target = arm.serving or (arm.wanted.name if arm.wanted is not None else "")
        if target and target not in world.refused:
            result.append(children.autoscaler(world.inference, arm, target))
    return result


def _existing(world: World, kind: Kind, name: str) -> Object | None:
    if kind is kinds.ROUTE:
        return world.route
    tables = {
        kinds.DEPLOYMENT: world.deployments,
        kinds.SERVICE: world.services,
        kinds.AUTOSCALER: world.autoscalers,
    }
    return tables[kind].get(name)


def _differs(world: World, ensure: Ensure) -> bool:
    have = _existing(world, ensure.kind, ensure.object["metadata"]["name"])
    if have is None:
        return True
    if ensure.kind is kinds.ROUTE and not _is_routed(have["spec"], ensure.object["spec"]):
        return True
    if ensure.kind is kinds.AUTOSCALER and have["spec"] != ensure.object["spec"]:
        return True  # it says every field that it has: what is left out is taken back
    return not covers(have, ensure.object) or _is_labelled(have) != _is_labelled(ensure.object)


def _is_routed(have: Object, want: Object) -> bool:
    """Whether a Route's spec asks for this; it stops being sticky, or on demand, by leaving that out."""
    return (
        covers(have, want)
        and ("sticky" in want or "sticky" not in have)
        and _on_demand(have) == _on_demand(want)
    )


def _on_demand(spec: Object) -> list[bool]:
    return [backend.get("onDemand", False) for backend in spec.get("backends") or []]


def _is_labelled(child: Object) -> bool:
    """Whether the activator looks at it; a child stops that by leaving the label out."""
    return names.ON_DEMAND_LABEL in (child["metadata"].get("labels") or {})


def _retired(world: World, arms: Sequence[Arm], route: Ensure) -> list[Action]:
    """Return the deletions of children that no gateway can be sending to any more."""
    if world.route is None or not arms_.is_accepted(world):
        return []
    reachable = [*(world.route["spec"].get("backends") or []), *route.object["spec"]["backends"]]
    used = {backend["name"] for backend in reachable}
    used |= {arm.wanted.name for arm in arms if arm.wanted is not None}
    inference = world.inference["metadata"]["name"]
    used_arms = {backend["arm"] for backend in reachable} | {arm.predictor.name for arm in arms}
    scalers = {autoscaler_name(inference, name) for name in used_arms}
    return [
        *_removals(kinds.AUTOSCALER, [o for name, o in world.autoscalers.items() if name not in scalers]),
        *_removals(kinds.DEPLOYMENT, [o for name, o in world.deployments.items() if name not in used]),
        *_removals(kinds.SERVICE, [o for name, o in world.services.items() if name not in used]),
    ]


def _removals(kind: Kind, objects: Sequence[Object], *, foreground: bool = False) -> list[Remove]:
    return [
        Remove(kind, obj["metadata"]["name"], obj["metadata"]["uid"], foreground)
        for obj in objects
        if not obj["metadata"].get("deletionTimestamp")
    ]


def _dismantle(world: World) -> Plan:
    """Take the Route away first, so that gateways stop sending, then the replicas (which drain), then let go.

    With `--cascade=orphan` the children stay; with `--cascade=foreground` the Inference does, until its Pods are gone.
    """
    finalizers = world.inference["metadata"].get("finalizers") or []
    if FINALIZER not in finalizers:
        return Plan()
    let_go = SetFinalizers(tuple(f for f in finalizers if f != FINALIZER))
    if "orphan" in finalizers:
        return Plan(actions=(let_go,))
    if world.route is not None:
        return Plan(actions=tuple(_removals(kinds.ROUTE, [world.route])))
    rest = [
        *_removals(kinds.AUTOSCALER, list(world.autoscalers.values())),
        *_removals(
            kinds.DEPLOYMENT, list(world.deployments.values()), foreground="foregroundDeletion" in finalizers
        ),
        *_removals(kinds.SERVICE, list(world.services.values())),
    ]
    return Plan(actions=(*rest, let_go))

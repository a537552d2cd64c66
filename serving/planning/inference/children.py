"""The objects that an Inference owns, as they should be."""

from collections.abc import Mapping, Sequence

from serving.objects import Object
from serving.planning.apportionment import apportion_at_least_one
from serving.planning.inference import replicas, traffic
from serving.planning.inference.arms import Arm, is_accepted
from serving.planning.inference.observed import Ensure, World
from serving.planning.inference.revision import Revision, autoscaler_name
from serving.resources import kinds, names
from serving.resources.inference import AutoScale, InferenceSpec

MAX_BACKENDS = 64
"""Limit of `Route.spec.backends`; candidates beyond it wait until revisions have been retired."""


def metadata(inference: Object, name: str, labels: Mapping[str, str]) -> Object:
    """Return metadata of a child: owned, so that it goes with its Inference even if nobody deletes it."""
    meta = inference["metadata"]
    return {
        "name": name,
        "namespace": meta["namespace"],
        "labels": {names.INFERENCE_LABEL: meta["name"], names.MANAGED_BY_LABEL: "slipway", **labels},
        "ownerReferences": [
            {
                "apiVersion": kinds.INFERENCE.api_version, "kind": kinds.INFERENCE.kind, "name": meta["name"],
                "uid": meta["uid"], "controller": True, "blockOwnerDeletion": True,
            }
        ],
    }  # fmt: skip


def deployment(world: World, arm: Arm, revision: Revision, count: int) -> Ensure:
    """Return the Deployment of a revision; `replicas` is said at its creation only: later the Autoscaler says."""
    labels = {names.PREDICTOR_LABEL: revision.arm, names.REVISION_LABEL: revision.name}
    body: Object = {
        "metadata": {
            **metadata(world.inference, revision.name, labels),
            **_standby(world.deployments.get(revision.name), arm.predictor.auto_scale),
        },
        "spec": {
            "selector": {"matchLabels": {names.REVISION_LABEL: revision.name}},
            "template": revision.template,
        },
    }
    claim = None
    if revision.claim is not None:
        claim = {"metadata": metadata(world.inference, revision.name, labels), "spec": revision.claim}
    return Ensure(kinds.DEPLOYMENT, body, at_creation={"spec": {"replicas": count}}, claim_template=claim)


def _standby(existing: Object | None, bounds: AutoScale) -> Object:
    """Return the annotation that keeps standby replicas; none that was there has to be said."""
    said = ((existing or {}).get("metadata") or {}).get("annotations") or {}
    if not bounds.standby and names.STANDBY_ANNOTATION not in said:
        return {}
    return {"annotations": {names.STANDBY_ANNOTATION: str(bounds.standby)}}


def is_on_demand(world: World, bounds: AutoScale, revision: str) -> bool:
    """Whether requests to a revision may have to wait for a replica: it may be at zero, or still is."""
    if bounds.may_be_zero:
        return True
    return _was_on_demand(world, revision) and replicas.counts(world.deployments.get(revision))[1] == 0


def _was_on_demand(world: World, revision: str) -> bool:
    backends = ((world.route or {}).get("spec") or {}).get("backends") or []
    return any(backend["name"] == revision and backend.get("onDemand") for backend in backends)


def on_demand_label(*, given: bool) -> dict[str, str]:
    """Return the label by which the activator finds what may be at zero; nothing where it is not given."""
    return {names.ON_DEMAND_LABEL: "true"} if given else {}


def service(world: World, name: str, arm: Arm, port: int) -> Ensure:
    """Return the Service of a revision of an arm; headless, as the gateway reads its EndpointSlices."""
    # Until the Route no longer says so: without the label the activator does not see the replicas that it waits for.
    given = is_on_demand(world, arm.predictor.auto_scale, name) or _was_on_demand(world, name)
    labels = {
        names.PREDICTOR_LABEL: arm.predictor.name,
        names.REVISION_LABEL: name,
        **on_demand_label(given=given),
    }
    body: Object = {
        "metadata": metadata(world.inference, name, labels),
        "spec": {
            "clusterIP": "None",
            "selector": {names.REVISION_LABEL: name},
            "ports": [{"name": "http", "port": port, "targetPort": port, "protocol": "TCP"}],
        },
    }
    return Ensure(kinds.SERVICE, body)


def autoscaler(inference: Object, arm: Arm, target: str) -> Ensure:
    """Return the Autoscaler of an arm, pointed at the revision that serves it.

    What is not proven yet is never at zero: it would never be ready, and so never be proven.
    """
    scaling = arm.predictor.auto_scale
    name = autoscaler_name(inference["metadata"]["name"], arm.predictor.name)
    labels = {names.PREDICTOR_LABEL: arm.predictor.name, **on_demand_label(given=scaling.may_be_zero)}
    spec = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": target},
        **_scaling(scaling, least=0 if arm.serving else 1),
    }
    return Ensure(kinds.AUTOSCALER, {"metadata": metadata(inference, name, labels), "spec": spec})


def _scaling(scaling: AutoScale, least: int) -> Object:
    """Return what an Autoscaler's spec says besides its target, defaults included, with no minimum below `least`."""
    found = scaling.model_dump(by_alias=True, exclude_none=True, exclude={"standby"})
    found["minReplicas"] = max(found["minReplicas"], least)
    for schedule in found["schedules"]:
        if "minReplicas" in schedule:
            schedule["minReplicas"] = max(schedule["minReplicas"], least)
    return {field: value for field, value in found.items() if value != []}


def initial_replicas(arm: Arm, deployments: Mapping[str, Object]) -> int:
    """Return what a new revision starts with: as many replicas as the one that it replaces, within bounds.

    At least one: where the arm may be at zero too, a revision is started once, to be proven.
    """
    bounds = arm.predictor.auto_scale
    least = max(bounds.min_replicas, 1)
    serving = deployments.get(arm.serving)
    if serving is None:
        return least
    count: int = serving["spec"].get("replicas", 1)
    return max(least, min(count, bounds.max_replicas))


def route(world: World, spec: InferenceSpec, arms: Sequence[Arm], serving: Mapping[str, str]) -> Ensure:
    """Return the Route: the ring over proven backends, and every backend that must stay or become reachable.

    Args:
        world: as read; its Route's ring is the one to change as little as possible.
        spec: the Inference's.
        arms: of the spec.
        serving: arm → proven backend, before this plan.
    """
    old = (world.route or {}).get("spec") or {}
    old_backends: dict[str, Object] = {backend["name"]: backend for backend in old.get("backends") or []}
    proven = {**serving, **{arm.predictor.name: arm.serving for arm in arms if arm.serving}}
    segments = _segments(old, old_backends, arms, proven)
    named = {segment["backend"] for segment in segments}
    backends = _backends(world, old_backends, arms, keep=named)
    labels = on_demand_label(given=any(backend.get("onDemand") for backend in backends))
    body: Object = {
        "metadata": metadata(world.inference, world.inference["metadata"]["name"], labels),
        "spec": {
            "inference": world.inference["metadata"]["name"],
            "backends": backends,
            "segments": segments,
        },
    }
    if spec.routing.sticky is not None:
        salt = world.inference["metadata"]["uid"]
        body["spec"]["sticky"] = {"header": spec.routing.sticky.header, "salt": salt}
    return Ensure(kinds.ROUTE, body)


def _segments(
    old: Object, old_backends: Mapping[str, Object], arms: Sequence[Arm], proven: Mapping[str, str]
) -> list[Object]:
    ring = [
        traffic.Segment(old_backends[segment["backend"]]["arm"], segment["size"])
        for segment in old.get("segments") or []
    ]
    target = target_units(ring, arms)
    return [
        {"backend": proven[segment.owner], "size": segment.size} for segment in traffic.reassign(ring, target)
    ]


def target_units(ring: Sequence[traffic.Segment], arms: Sequence[Arm]) -> dict[str, int]:
    """Return the units that each arm should have.

    An arm that is not proven yet gets nothing. Its share falls to arms that the spec no longer has but that
    still serve (so renaming an arm fails no request), else to the proven ones in proportion.
    """
    weights = {arm.predictor.name: arm.predictor.traffic_weight for arm in arms}
    proven = {arm.predictor.name: weights[arm.predictor.name] for arm in arms if arm.serving}
    leaving: dict[str, int] = {}
    for segment in ring:
        if segment.owner not in weights:
            leaving[segment.owner] = leaving.get(segment.owner, 0) + segment.size
    pending = sum(weights.values()) - sum(proven.values())
    if not leaving or not pending:
        return apportion_at_least_one(proven)
    # Scaled by the leaving arms' units, so that they share the pending weight in proportion, in whole numbers.
    scale = sum(leaving.values())
    scaled = {name: weight * scale for name, weight in proven.items()}
    return apportion_at_least_one(scaled | {name: pending * size for name, size in leaving.items()})


def _backends(
    world: World, old: Mapping[str, Object], arms: Sequence[Arm], *, keep: set[str]
) -> list[Object]:
    """Return the proven and the named, those that a gateway may still be sending to, and the candidates."""
    busy = {segment["backend"] for segment in ((world.route or {}).get("spec") or {}).get("segments") or []}
    stays = keep | {arm.serving for arm in arms} | busy
    if not is_accepted(world):
        stays |= set(old)
    wanted = {
        arm.wanted.name: arm.wanted
        for arm in arms
        if arm.wanted is not None and arm.wanted.name not in world.refused
    }
    result = {name: backend for name, backend in old.items() if name in stays or name in wanted}
    for name, revision in wanted.items():
        if name in result or len(result) < MAX_BACKENDS:
            result[name] = {
                "name": name, "arm": revision.arm, "service": name, "port": revision.port,
                "modelVersion": revision.model_version,
            }  # fmt: skip
    for arm in arms:
        if arm.serving and arm.serving not in result:
            result[arm.serving] = _lost_backend(arm, world)
    scaled = {arm.predictor.name: arm.predictor.auto_scale for arm in arms}
    return [_as_scaled(world, backend, scaled.get(backend["arm"])) for backend in result.values()]


def _as_scaled(world: World, backend: Object, bounds: AutoScale | None) -> Object:
    """Return the entry as its arm is scaled now; an arm that has left the spec stays as it was."""
    if bounds is None:
        return backend
    plain = {key: value for key, value in backend.items() if key not in ("onDemand", "autoscaler")}
    if not is_on_demand(world, bounds, backend["name"]):
        return plain
    name = autoscaler_name(world.inference["metadata"]["name"], backend["arm"])
    return {**plain, "onDemand": True, "autoscaler": name}


def _lost_backend(arm: Arm, world: World) -> Object:
    """Rebuild the entry of a proven backend whose Route was deleted by somebody."""
    port = service_port(world, arm.serving)
    return {"name": arm.serving, "arm": arm.predictor.name, "service": arm.serving, "port": port}


def service_port(world: World, name: str) -> int:
    """Return the port of a revision's Service as it is, or the runtimes' where there is none."""
    ports = ((world.services.get(name) or {}).get("spec") or {}).get("ports") or [{}]
    port: int = ports[0].get("port", names.RUNTIME_PORT)
    return port

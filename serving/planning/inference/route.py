"""The Route of an Inference: a hash ring over proven backends, and all backends that gateways must reach."""

from collections.abc import Mapping, Sequence

from serving.objects import Object
from serving.planning.inference import children, traffic
from serving.planning.inference.arms import Arm
from serving.planning.inference.inference_state import InferenceState
from serving.planning.inference.plan import Ensure
from serving.planning.inference.revision import ServedPort, autoscaler_name
from serving.resources import kinds, names
from serving.resources.base import Base
from serving.resources.inference import InferenceSpec, Predictor
from serving.resources.routing import PredictorRouting, RetryCause, Routing

MAX_BACKENDS = 64
"""Limit of `Route.spec.backends`; further candidates wait until revisions have been retired."""
_PREDICTOR_FIELDS = frozenset({"onDemand", "autoscaler", "timeouts", "retries", "ejection", "limits"})
"""Fields of a backend that follow its predictor; the others are those of its revision."""
_TOKEN_USAGE = {"transformers": "continuous"}
"""`Route.spec.tokenUsage` of our runtimes, by framework; an engine's manifest has its own."""


def render(state: InferenceState, inference: InferenceSpec, arms: Sequence[Arm]) -> Ensure:
    """Return the Route of these arms; its ring differs as little as possible from the stored one."""
    routing = inference.routing
    segments = _segments(state, arms)
    backends = _backends(state, inference, arms, keep={segment["backend"] for segment in segments})
    labels = children.on_demand_label(on_demand=any(backend.get("onDemand") for backend in backends))
    spec: Object = {"inference": state.name, "backends": backends, "segments": segments}
    if routing.sticky is not None:
        salt = state.observed.inference["metadata"]["uid"]
        spec["sticky"] = {"header": routing.sticky.header, "salt": salt}
    if timeouts := _set_fields(routing.timeouts):
        spec["timeouts"] = timeouts
    engine = state.observed.engines.get(inference.framework)
    usage = _TOKEN_USAGE.get(inference.framework, "none") if engine is None else engine.token_usage
    if usage != "none":
        spec["tokenUsage"] = usage
    spec["retries"] = _retries(inference, routing)
    body = {"metadata": children.metadata(state.observed.inference, state.name, labels), "spec": spec}
    return Ensure(kinds.ROUTE, body)


def _retries(inference: InferenceSpec, *routing: Routing | PredictorRouting) -> Object:
    """Return the retries of a Route or a backend; of `routing`, a later part has precedence.

    By default a request that a replica may have worked on is repeated, as predictions of runtimes and engines
    have no effects. The effects of a request to a custom container are unknown.
    """
    causes: list[RetryCause] = ["Unsent"] if inference.framework == "custom" else ["Unsent", "Lost"]
    return {"on": causes, **_set_fields(*(part.retries for part in routing))}


def _set_fields(*parts: Base) -> Object:
    """Return the fields that are set, as JSON; a later part has precedence."""
    fields: Object = {}
    for part in parts:
        fields |= part.model_dump(mode="json", by_alias=True, exclude_none=True)
    return fields


def _segments(state: InferenceState, arms: Sequence[Arm]) -> list[Object]:
    """Return the ring by the weights of the arms: each segment has a proven backend and its units."""
    ring = [
        traffic.ArmSegment(state.backends[segment["backend"]]["arm"], segment["size"])
        for segment in state.segments
    ]
    # An arm whose revision is blocked is not in `serving`: it loses its units, and takes over no others.
    allowed = [segment for segment in ring if segment.arm in state.serving]
    proven = {arm.predictor.name: arm.serving for arm in arms if arm.serving}
    weights = {arm.predictor.name: arm.predictor.traffic_weight for arm in arms}
    backend_by_arm = {**state.serving, **proven}
    target = traffic.target_units(allowed, weights, proven)
    return [
        {"backend": backend_by_arm[segment.arm], "size": segment.size}
        for segment in traffic.reassign(ring, target)
    ]


def _backends(
    state: InferenceState, inference: InferenceSpec, arms: Sequence[Arm], *, keep: set[str]
) -> list[Object]:
    """Return the backends of the ring (`keep`), those that gateways may still use, and the candidates."""
    needed = keep | {arm.serving for arm in arms} | {segment["backend"] for segment in state.segments}
    if not state.is_accepted:  # a gateway may still send requests by an earlier Route
        needed |= set(state.backends)
    desired = {
        arm.desired.name: arm.desired
        for arm in arms
        if arm.desired is not None and arm.desired.name not in state.observed.refused
    }
    result = {name: entry for name, entry in state.backends.items() if name in needed or name in desired}
    for name, revision in desired.items():
        if name in result or len(result) < MAX_BACKENDS:
            result[name] = {
                "name": name,
                "arm": revision.arm,
                "service": name,
                **_port_fields(revision.port),
                "modelVersion": revision.model_version,
            }
    for arm in arms:
        if arm.serving and arm.serving not in result:
            result[arm.serving] = _rebuilt_backend(state, arm)
    predictors = {arm.predictor.name: arm.predictor for arm in arms}
    probes = {
        arm.candidate.name: arm.candidate.probe_paths
        for arm in arms
        if arm.candidate is not None and _is_probed(state, arm, arm.candidate.name)
    }
    return [
        _with_predictor_fields(state, _with_probe(entry, probes), inference, predictors.get(entry["arm"]))
        for entry in result.values()
    ]


def _is_probed(state: InferenceState, arm: Arm, candidate: str) -> bool:
    """Whether gateways probe a candidate: the result of a replica of an edited template proves nothing.

    The probe of an edited candidate leaves the Route. The probe returns once every gateway has dropped its
    result and no replica of the edited template remains.
    """
    if arm.edit is not None:
        return False
    stored = state.backends.get(candidate)
    if stored is None or "probe" in stored:
        return True
    replicas = state.replicas.get(candidate)
    return state.is_accepted and (replicas is None or replicas.has_present_template)


def _with_probe(backend: Object, probes: Mapping[str, Sequence[str]]) -> Object:
    """Return the entry with the probe of a candidate; gateways probe no other backend."""
    entry = {key: value for key, value in backend.items() if key != "probe"}
    paths = probes.get(backend["name"])
    return {**entry, "probe": list(paths)} if paths else entry


def _with_predictor_fields(
    state: InferenceState, backend: Object, inference: InferenceSpec, predictor: Predictor | None
) -> Object:
    """Return the entry with the present fields of its predictor; unchanged if the predictor is None, as it
    has left the spec.
    """
    if predictor is None:
        return backend
    entry = {key: value for key, value in backend.items() if key not in _PREDICTOR_FIELDS}
    service, own = inference.routing, predictor.routing
    policy = {
        "timeouts": _set_fields(own.timeouts),
        "ejection": _set_fields(service.ejection, own.ejection),
        "limits": _set_fields(service.limits, own.limits),
    }
    if _set_fields(own.retries):  # otherwise the retries of the Route apply
        policy["retries"] = _retries(inference, service, own)
    entry |= {key: fields for key, fields in policy.items() if fields}
    if not state.is_on_demand(backend["name"], predictor.auto_scale):
        return entry
    return {**entry, "onDemand": True, "autoscaler": autoscaler_name(state.name, backend["arm"])}


def _rebuilt_backend(state: InferenceState, arm: Arm) -> Object:
    """Return the entry of a proven backend whose Route was deleted; its Service has no `modelVersion`."""
    port = children.service_port(state.observed.services.get(arm.serving))
    return {"name": arm.serving, "arm": arm.predictor.name, "service": arm.serving, **_port_fields(port)}


def _port_fields(port: ServedPort) -> Object:
    entry: Object = {"port": port.number}
    return {**entry, "protocol": names.H2C} if port.h2c else entry

"""The desired Deployments, Services, Autoscalers and PodDisruptionBudgets of an Inference."""

from collections.abc import Mapping, Sequence

from serving.objects import Object
from serving.planning.inference.arms import Arm
from serving.planning.inference.inference_state import InferenceState
from serving.planning.inference.plan import Ensure
from serving.planning.inference.revision import Revision, ServedPort, autoscaler_name
from serving.resources import kinds, names
from serving.resources.inference import AutoScale
from serving.resources.kubernetes import owner_references

_MANAGER = "slipway"
"""Value of the label `app.kubernetes.io/managed-by`."""
BUDGET_REPLICAS = 2
"""Fewest replicas, at any time, of an arm with a PodDisruptionBudget: one of two may leave."""


def metadata(inference: Object, name: str, labels: Mapping[str, str]) -> Object:
    """Return the metadata of a child, owned by its Inference so that it is garbage-collected with it."""
    meta = inference["metadata"]
    return {
        "name": name,
        "namespace": meta["namespace"],
        "labels": {names.INFERENCE_LABEL: meta["name"], names.MANAGED_BY_LABEL: _MANAGER, **labels},
        "ownerReferences": [owner_references.controller_reference(kinds.INFERENCE, inference)],
    }


def orphan_of(child: Object) -> str | None:
    """Return the Inference that an orphaned child names in its labels; None for all other objects.

    `kubectl delete --cascade=orphan` orphans children: they have no controlling owner. An object of a user
    does not have both labels.
    """
    meta = child["metadata"]
    labels = meta.get("labels") or {}
    if labels.get(names.MANAGED_BY_LABEL) != _MANAGER:
        return None
    if owner_references.controller_of(child) is not None:
        return None
    name: str | None = labels.get(names.INFERENCE_LABEL)
    return name


def on_demand_label(*, on_demand: bool) -> dict[str, str]:
    """Return the label by which the activator finds predictors that may be at zero, or no label."""
    return {names.ON_DEMAND_LABEL: "true"} if on_demand else {}


def revisions(state: InferenceState, arms: Sequence[Arm]) -> list[Ensure]:
    """Return the Deployment and Service of every desired revision, and the Services of replaced ones.

    A replaced revision still serves. Its Deployment is not checked, but its Service has the label of
    on-demand backends, which may change. A desired revision whose Deployment the API has refused has a
    Service only if it serves already.
    """
    result = []
    for arm in arms:
        desired = arm.desired
        is_refused = desired is not None and desired.name in state.observed.refused
        if desired is not None and not is_refused:
            result.append(_deployment(state, arm, desired))
        if desired is not None and (not is_refused or desired.name == arm.serving):
            result.append(_service(state, arm, desired.name, desired.port))
        service = state.observed.services.get(arm.serving)
        if service is not None and (desired is None or desired.name != arm.serving):
            result.append(_service(state, arm, arm.serving, service_port(service)))
    return result


def autoscalers(state: InferenceState, arms: Sequence[Arm]) -> list[Ensure]:
    """Return the Autoscaler of every arm with a target: its serving revision, or else its candidate."""
    targets = ((arm, _target(state, arm)) for arm in arms)
    return [autoscaler(state.observed.inference, arm, target) for arm, target in targets if target]


def disruption_budgets(state: InferenceState, arms: Sequence[Arm]) -> list[Ensure]:
    """Return the PodDisruptionBudget of every arm that has a revision and always two replicas or more.

    With one replica a budget would either permit its eviction, which needs no object, or block a drain.
    """
    if state.observed.budgets is None:
        return []
    targets = (
        (arm, _target(state, arm)) for arm in arms if arm.predictor.auto_scale.min_replicas >= BUDGET_REPLICAS
    )
    return [_disruption_budget(state.observed.inference, arm, target) for arm, target in targets if target]


def _target(state: InferenceState, arm: Arm) -> str:
    """Return the serving revision of an arm, or else its candidate; empty if there is neither."""
    if arm.serving or arm.desired is None or arm.desired.name in state.observed.refused:
        return arm.serving
    return arm.desired.name


def _disruption_budget(inference: Object, arm: Arm, target: str) -> Ensure:
    """Return the budget of one revision: replicas of a candidate that fails must block no drain."""
    name = autoscaler_name(inference["metadata"]["name"], arm.predictor.name)
    labels = {names.PREDICTOR_LABEL: arm.predictor.name}
    spec = {
        "maxUnavailable": 1,
        "selector": {"matchLabels": {names.REVISION_LABEL: target}},
        # A replica that is not ready serves no requests, so that its eviction loses none.
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
    }
    return Ensure(kinds.POD_DISRUPTION_BUDGET, {"metadata": metadata(inference, name, labels), "spec": spec})


def _deployment(state: InferenceState, arm: Arm, revision: Revision) -> Ensure:
    """Return a revision's Deployment; `replicas` is set only at creation, as the Autoscaler owns it then."""
    inference = state.observed.inference
    labels = {names.PREDICTOR_LABEL: revision.arm, names.REVISION_LABEL: revision.name}
    existing = state.observed.deployments.get(revision.name)
    body: Object = {
        "metadata": {
            **metadata(inference, revision.name, labels),
            **_standby(existing, arm.predictor.auto_scale),
        },
        "spec": {
            "selector": {"matchLabels": {names.REVISION_LABEL: revision.name}},
            "template": revision.template,
        },
    }
    claim = None
    if revision.claim is not None:
        claim = {"metadata": metadata(inference, revision.name, labels), "spec": revision.claim}
    at_creation = {"spec": {"replicas": arm.initial_replicas}}
    return Ensure(kinds.DEPLOYMENT, body, at_creation=at_creation, claim_template=claim)


def _standby(existing: Object | None, auto_scale: AutoScale) -> Object:
    """Return metadata with the number of standby replicas as an annotation.

    Zero is written only over an existing annotation, so that Deployments without standby replicas have none.
    """
    annotations = ((existing or {}).get("metadata") or {}).get("annotations") or {}
    if not auto_scale.standby and names.STANDBY_ANNOTATION not in annotations:
        return {}
    return {"annotations": {names.STANDBY_ANNOTATION: str(auto_scale.standby)}}


def _service(state: InferenceState, arm: Arm, revision: str, port: ServedPort) -> Ensure:
    """Return a revision's Service; headless, as the gateway reads its EndpointSlices."""
    # The label stays until the Route has lost `onDemand`, as the activator finds replicas by it.
    on_demand = state.is_on_demand(revision, arm.predictor.auto_scale) or state.was_on_demand(revision)
    labels = {
        names.PREDICTOR_LABEL: arm.predictor.name,
        names.REVISION_LABEL: revision,
        **on_demand_label(on_demand=on_demand),
    }
    body: Object = {
        "metadata": metadata(state.observed.inference, revision, labels),
        "spec": {
            "clusterIP": "None",
            "selector": {names.REVISION_LABEL: revision},
            "ports": [_port_entry(port)],
        },
    }
    return Ensure(kinds.SERVICE, body)


def _port_entry(port: ServedPort) -> Object:
    entry = {"name": "http", "port": port.number, "targetPort": port.number, "protocol": "TCP"}
    return {**entry, "name": names.H2C, "appProtocol": names.H2C_PROTOCOL} if port.h2c else entry


def service_port(service: Object | None) -> ServedPort:
    """Return the port of a revision's Service, or the runtimes' port if there is no Service."""
    ports = ((service or {}).get("spec") or {}).get("ports") or [{}]
    h2c = ports[0].get("appProtocol") == names.H2C_PROTOCOL
    return ServedPort(ports[0].get("port", names.RUNTIME_PORT), h2c=h2c)


def autoscaler(inference: Object, arm: Arm, target: str) -> Ensure:
    """Return the Autoscaler of an arm, with the Deployment `target` to scale.

    Its minimum is at least 1 until a revision serves: without a replica, none would ever be proven.
    """
    scaling = arm.predictor.auto_scale
    name = autoscaler_name(inference["metadata"]["name"], arm.predictor.name)
    labels = {names.PREDICTOR_LABEL: arm.predictor.name, **on_demand_label(on_demand=scaling.may_be_zero)}
    spec = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": target},
        **_scaling(scaling, least=0 if arm.serving else 1),
    }
    return Ensure(kinds.AUTOSCALER, {"metadata": metadata(inference, name, labels), "spec": spec})


def _scaling(scaling: AutoScale, least: int) -> Object:
    """Return an Autoscaler's spec without its target: defaults included, with no minimum below `least`."""
    spec = scaling.model_dump(by_alias=True, exclude_none=True, exclude={"standby"})
    spec["minReplicas"] = max(spec["minReplicas"], least)
    for schedule in spec["schedules"]:
        if "minReplicas" in schedule:
            schedule["minReplicas"] = max(schedule["minReplicas"], least)
    return {field: value for field, value in spec.items() if value != []}  # an empty list is the default

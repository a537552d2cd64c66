"""Our kinds with their schemas and printer columns, and their export as CustomResourceDefinitions."""

from dataclasses import dataclass
from functools import cache
from typing import Any

from serving.resources import autoscaler, inference, kinds, model, route
from serving.resources.base import Base, structural
from serving.resources.tuning import capacity_profile, experiment, experiment_status, trial


@dataclass(frozen=True)
class PrinterColumn:
    """A column of `kubectl get`; `path` is a JSONPath as in a CRD."""

    name: str
    path: str
    type: str = "string"
    priority: int = 0


@dataclass(frozen=True)
class Definition:
    """One of our kinds with its schema and columns."""

    kind: kinds.Kind
    description: str
    spec: type[Base]
    status: type[Base] | None
    """None for a kind without a status subresource."""
    columns: tuple[PrinterColumn, ...]


READY = PrinterColumn("Ready", '.status.conditions[?(@.type=="Ready")].status')
REASON = PrinterColumn("Reason", '.status.conditions[?(@.type=="Ready")].reason')
AGE = PrinterColumn("Age", ".metadata.creationTimestamp", "date")

DEFINITIONS: tuple[Definition, ...] = (
    Definition(
        kinds.MODEL,
        "Model is a named model; its status names the newest version that is ready.",
        model.ModelSpec,
        model.ModelStatus,
        (
            PrinterColumn("Latest-Version", ".status.latestVersion.name"),
            PrinterColumn("Versions", ".status.versions", "integer"),
            PrinterColumn("Latest-Image", ".status.latestVersion.image", priority=1),
            AGE,
        ),
    ),
    Definition(
        kinds.MODEL_VERSION,
        "ModelVersion is one immutable image of a model's files, with its lineage.",
        model.ModelVersionSpec,
        model.ModelVersionStatus,
        (
            PrinterColumn("Model", ".spec.modelName"),
            PrinterColumn("Phase", ".status.phase"),
            PrinterColumn("Source", ".status.lineage.kind"),
            PrinterColumn("Created-By", ".status.lineage.name"),
            PrinterColumn("Digest", ".status.digest"),
            PrinterColumn("Attempts", ".status.attempts", "integer", 1),
            PrinterColumn("Finish-Time", ".status.finishTime", "date", 1),
            REASON,
            AGE,
        ),
    ),
    Definition(
        kinds.INFERENCE,
        "Inference is one stable endpoint over weighted predictors.",
        inference.InferenceSpec,
        inference.InferenceStatus,
        (
            READY,
            REASON,
            PrinterColumn("Traffic", ".status.traffic"),
            PrinterColumn("URL", ".status.url"),
            AGE,
        ),
    ),
    Definition(
        kinds.ROUTE,
        "Route is what the gateways serve for one Inference; written by its controller.",
        route.RouteSpec,
        route.RouteStatus,
        (
            PrinterColumn("Inference", ".spec.inference"),
            PrinterColumn("Accepted", ".status.gateways[*].acceptedGeneration"),
            PrinterColumn("Address", ".status.gateways[*].address"),
            AGE,
        ),
    ),
    Definition(
        kinds.AUTOSCALER,
        "Autoscaler scales one target to its own count or, with `managed: false`, to another autoscaler's.",
        autoscaler.AutoscalerSpec,
        autoscaler.AutoscalerStatus,
        (
            PrinterColumn("Target", ".spec.scaleTargetRef.name"),
            PrinterColumn("Min", ".spec.minReplicas", "integer"),
            PrinterColumn("Max", ".spec.maxReplicas", "integer"),
            PrinterColumn("Desired", ".status.desiredReplicas", "integer"),
            PrinterColumn("Current", ".status.currentReplicas", "integer"),
            PrinterColumn("Ready", ".status.readyReplicas", "integer"),
            REASON,
            PrinterColumn("Metric", ".status.decision.metric", priority=1),
            PrinterColumn("Forecast", ".status.decision.forecast.upper", "number", 1),
            PrinterColumn("Message", ".status.reason", priority=1),
            AGE,
        ),
    ),
    Definition(
        kinds.PROFILING_EXPERIMENT,
        "ProfilingExperiment is a search for the cheapest spec that meets an objective.",
        experiment.ProfilingExperimentSpec,
        experiment_status.ProfilingExperimentStatus,
        (
            PrinterColumn("Phase", ".status.phase"),
            PrinterColumn("Specs", ".status.specs", "integer"),
            PrinterColumn("Trials", ".status.trials.total", "integer"),
            PrinterColumn("Objective", ".spec.objective.objectiveMetricName"),
            PrinterColumn("Best", ".status.best.objective", "number"),
            PrinterColumn("Regret", ".status.expectedRegret", "number", 1),
            REASON,
            AGE,
        ),
    ),
    Definition(
        kinds.TRIAL,
        "Trial is one spec of a ProfilingExperiment, measured.",
        trial.TrialSpec,
        trial.TrialStatus,
        (
            PrinterColumn("Experiment", ".spec.experiment"),
            PrinterColumn("Number", ".spec.number", "integer"),
            PrinterColumn("Purpose", ".spec.purpose", priority=1),
            PrinterColumn("Phase", ".status.phase"),
            PrinterColumn("Reason", ".status.reason"),
            PrinterColumn("Throughput", ".status.result.throughput.value", "number"),
            PrinterColumn("Meets", ".status.result.meets"),
            PrinterColumn("Cost-Per-Hour", ".spec.costPerHour", "number", 1),
            AGE,
        ),
    ),
    Definition(
        kinds.CAPACITY_PROFILE,
        "CapacityProfile is a measured curve of load, latency and throughput of one replica.",
        capacity_profile.CapacityProfileSpec,
        None,
        (
            PrinterColumn("Model-Version", ".spec.modelVersion"),
            PrinterColumn("Capacity", ".spec.capacity", "number"),
            PrinterColumn("Machine", ".spec.machine", priority=1),
            AGE,
        ),
    ),
)


@cache
def schema(definition: Definition) -> dict[str, Any]:
    """Return the structural schema of the whole object, as in a CRD. Callers must not change it."""
    spec = structural(definition.spec)
    status = {"status": structural(definition.status)} if definition.status else {}
    spec.setdefault("description", f"{definition.kind.kind}Spec.")
    return {
        "type": "object",
        "description": definition.description,
        "required": ["spec"] if spec.get("required") else [],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": spec,
            **status,
        },
    }


def subresources(kind: kinds.Kind) -> dict[str, Any]:
    """Return the subresources of a kind with a status, as a CRD describes them."""
    if kind.scale is None:
        return {"status": {}}
    selector = {"labelSelectorPath": ".status.selector"} if kind.scale.has_selector_text else {}
    scale = {
        "specReplicasPath": ".spec.replicas",
        "statusReplicasPath": f".status.{kind.scale.current}",
        **selector,
    }
    return {"status": {}, "scale": scale}


def crd(definition: Definition) -> dict[str, Any]:
    """Return the CustomResourceDefinition for a cluster."""
    kind = definition.kind
    body = {k: v for k, v in schema(definition).items() if not (k == "required" and not v)}
    columns = [
        {"name": c.name, "jsonPath": c.path, "type": c.type}
        | ({"priority": c.priority} if c.priority else {})
        for c in definition.columns
    ]
    names: dict[str, Any] = {
        "kind": kind.kind,
        "listKind": f"{kind.kind}List",
        "plural": kind.plural,
        "singular": kind.singular,
        "categories": list(kind.categories),
    }
    if kind.short:
        names["shortNames"] = list(kind.short)
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.plural}.{kind.group}"},
        "spec": {
            "group": kind.group,
            "scope": "Namespaced",
            "names": names,
            "versions": [
                {
                    "name": kind.version,
                    "served": True,
                    "storage": True,
                    **({"subresources": subresources(kind)} if kind.status else {}),
                    "additionalPrinterColumns": columns,
                    "schema": {"openAPIV3Schema": body},
                }
            ],
        },
    }

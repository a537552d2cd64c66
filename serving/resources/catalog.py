"""Slipway's kinds with their schemas and printer columns."""

from serving.resources import autoscaler, inference, kinds, model, route
from serving.resources.definitions import Definition, PrinterColumn
from serving.resources.tuning import capacity_profile, experiment, experiment_status, trial

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
        created_in_order=True,  # retention keeps the newest versions
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

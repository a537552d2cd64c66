"""Snapshots of experiments with trials, and the contents of their plans."""

import datetime as dt
import math
from typing import Any

from serving.objects import Object
from serving.resources.tuning.experiment import ProfilingExperimentSpec
from serving.resources.tuning.experiment_status import ProfilingExperimentStatus
from serving.resources.tuning.trial import TrialSpec, TrialStatus
from tests.objects.tuning import experiments
from tests.objects.tuning.experiments import failed
from tuner.objective import objective_value
from tuner.planning import experiment as planning
from tuner.planning.snapshot import ExperimentSnapshot
from tuner.search.decision_values import Decision
from tuner.search.problem import TrialObservation
from tuner.settings import DEFAULTS
from tuner.specs import rendering
from tuner.specs.space import Space
from tuner.trial_record import TrialRecord

NOW = dt.datetime(2026, 1, 1, 0, 10, tzinfo=dt.UTC)
RUNNING: Object = {"phase": "Measuring"}
LOST = failed("LoadFailed", "locust died", notes=["LoadRestarted: locust died"])
INFERENCE: Object = {
    "metadata": {"name": "digits", "namespace": "default"},
    "spec": {
        "framework": "sklearn",
        "predictors": [{"name": "main", "modelVersion": "v1", "resources": {"cpu": "1", "memory": "2Gi"}}],
    },
}
OF_INFERENCE: Object = {"inference": INFERENCE, "target": {"inference": "digits"}}


def world(
    *trials: tuple[int | None, Object], purposes: dict[int, str] | None = None, **spec: Any
) -> ExperimentSnapshot:
    """Return an experiment with these trials: the row of each (None: outside the space), and its status."""
    inference = spec.pop("inference", None)
    status = spec.pop("status", {})
    experiment_object = experiments.experiment(**spec)
    parsed = ProfilingExperimentSpec.model_validate(experiment_object["spec"])
    space = Space.of(parsed)
    tuned_target = rendering.tuned_target(parsed.target, inference, {})

    def render(settings: Any) -> rendering.Rendering:
        return rendering.pod(tuned_target, experiments.model_version(), settings, parsed.prices)

    records = []
    for number, (index, trial_status) in enumerate(trials, 1):
        settings = () if index is None else space.settings(index)
        rendered = render(settings)
        purpose = (purposes or {}).get(number, "Explore")
        body = TrialSpec(
            experiment="pe",
            number=number,
            purpose=purpose,  # type: ignore[arg-type]
            settings=list(settings),
            template=rendered.template,
            model_name="v1",
            model_digest="sha256:1",
            cost_per_hour=rendered.cost_per_hour,
        )
        state = TrialStatus.model_validate(trial_status)
        objective = None
        if state.result is not None:
            objective = objective_value(parsed.objective, state.result, body.cost_per_hour, body.batch)
        observation = None
        if index is not None and state.phase == "Succeeded" and state.result is not None:
            throughput_per_cost = state.result.throughput.value / rendered.cost_per_hour
            observation = (
                TrialObservation(
                    index, log_objective=math.log(throughput_per_cost), noise=0.01, margins=(-0.5,)
                )
                if throughput_per_cost > 0
                else TrialObservation(index, cause="crash")
            )
        elif (
            index is not None
            and state.phase == "Failed"
            and state.reason not in {"LoadFailed", "Interrupted"}
        ):
            observation = TrialObservation(index, cause="boot")
        records.append(TrialRecord(f"pe-{number}", body, state, index, objective, observation))
    experiment_object["status"] = status
    return ExperimentSnapshot(
        experiment_object,
        parsed,
        ProfilingExperimentStatus.model_validate(status),
        space,
        tuple(records),
        render,
        DEFAULTS,
    )


def planned_trials(snapshot: ExperimentSnapshot, decision: Decision | None) -> list[tuple[str, str, str]]:
    """Return name, purpose and settings of the planned trials."""
    plan = planning.plan(snapshot, decision, NOW)
    return [
        (
            trial["metadata"]["name"],
            trial["spec"]["purpose"],
            " ".join(setting["value"] for setting in trial["spec"]["settings"]),
        )
        for trial in plan.trials
    ]


def status(snapshot: ExperimentSnapshot, decision: Decision | None) -> Object:
    planned = planning.plan(snapshot, decision, NOW).status
    assert planned is not None
    return dict(planned)


def message(status_object: Object) -> str:
    return str(next(c["message"] for c in status_object["conditions"] if c["type"] == "Ready"))


def condition(status_object: Object, type_: str) -> tuple[str, str]:
    return next((c["status"], c["reason"]) for c in status_object["conditions"] if c["type"] == type_)

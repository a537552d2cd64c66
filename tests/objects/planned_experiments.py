"""Experiments with trials, by value: the world that a plan is made of, and what plans say."""

import datetime as dt
import math
from typing import Any

from serving.objects import Object
from serving.resources.experiment import ProfilingExperimentSpec, ProfilingExperimentStatus
from serving.resources.trial import TrialSpec, TrialStatus
from tests.objects import experiments
from tests.objects.experiments import failed
from tuner.objective import objective_value
from tuner.planning import experiment as planning
from tuner.planning.snapshot import ExperimentSnapshot
from tuner.search.decision import Decision
from tuner.search.problem import Observation
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
    """Return an experiment with these trials: the row of each (None: beside the space), and its status."""
    inference = spec.pop("inference", None)
    status = spec.pop("status", {})
    found = experiments.experiment(**spec)
    read = ProfilingExperimentSpec.model_validate(found["spec"])
    space = Space.of(read)
    source = rendering.source(read.target, inference)

    def render(settings: Any) -> rendering.Rendering:
        return rendering.pod(source, experiments.model_version(), settings, read.prices)

    known = []
    for number, (index, said) in enumerate(trials, 1):
        settings = () if index is None else space.settings(index)
        shown = render(settings)
        purpose = (purposes or {}).get(number, "Explore")
        body = TrialSpec(
            experiment="pe", number=number, purpose=purpose, settings=list(settings), template=shown.template,  # type: ignore[arg-type]
            model_name="v1", model_digest="sha256:1", cost_per_hour=shown.cost_per_hour,
        )  # fmt: skip
        state = TrialStatus.model_validate(said)
        objective = None
        if state.result is not None:
            objective = objective_value(read.objective, state.result, body.cost_per_hour, body.batch)
        observation = None
        if index is not None and state.phase == "Succeeded" and state.result is not None:
            done = state.result.throughput.value / shown.cost_per_hour
            observation = (
                Observation(index, log_objective=math.log(done), noise=0.01, margins=(-0.5,))
                if done > 0
                else Observation(index, cause="crash")
            )
        elif (
            index is not None
            and state.phase == "Failed"
            and state.reason not in {"LoadFailed", "Interrupted"}
        ):
            observation = Observation(index, cause="boot")
        known.append(TrialRecord(f"pe-{number}", body, state, index, objective, observation))
    found["status"] = status
    return ExperimentSnapshot(
        found, read, ProfilingExperimentStatus.model_validate(status), space, tuple(known), render, DEFAULTS
    )


def made(found: ExperimentSnapshot, decision: Decision | None) -> list[tuple[str, str, str]]:
    """Return name, purpose and settings of the trials that are made."""
    plan = planning.plan(found, decision, NOW)
    return [
        (
            trial["metadata"]["name"],
            trial["spec"]["purpose"],
            " ".join(setting["value"] for setting in trial["spec"]["settings"]),
        )
        for trial in plan.trials
    ]


def status(found: ExperimentSnapshot, decision: Decision | None) -> Object:
    written = planning.plan(found, decision, NOW).status
    assert written is not None
    return dict(written)


def message(said: Object) -> str:
    return str(next(c["message"] for c in said["conditions"] if c["type"] == "Ready"))


def condition(said: Object, type_: str) -> tuple[str, str]:
    return next((c["status"], c["reason"]) for c in said["conditions"] if c["type"] == type_)

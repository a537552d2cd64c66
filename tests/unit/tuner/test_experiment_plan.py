"""From objects to a plan, with the real search in between: what cannot begin says why, and what was learned elsewhere is told."""

import datetime as dt
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from serving import errors
from serving.objects import Object
from tests.objects import experiments
from tests.objects.experiments import failed, measured, parameters
from tuner.experiment_plan import Decide, make_plan
from tuner.observation import MOST_MARGIN
from tuner.planning.exchange import ExperimentPlan, PlanRequest, RecordedExperiment
from tuner.search.decide import decide
from tuner.search.decision import Decision
from tuner.search.problem import Earlier
from tuner.settings import DEFAULTS

NOW = dt.datetime(2026, 1, 1, 0, 10, tzinfo=dt.UTC)


def ask(
    experiment: Object,
    trials: Sequence[Object] = (),
    *,
    versions: Sequence[str] = ("v1",),
    inference: Object | None = None,
    earlier: Sequence[RecordedExperiment] = (),
    search: Decide = experiments.plain,
) -> ExperimentPlan:
    known = {name: experiments.model_version(name) for name in versions}
    request = PlanRequest(RecordedExperiment(experiment, trials), inference, known, earlier, DEFAULTS)
    return make_plan(request, NOW, search)


def ready(plan: ExperimentPlan) -> tuple[str, str, str]:
    assert plan.status is not None
    found = next(c for c in plan.status["conditions"] if c["type"] == "Ready")
    return plan.status["phase"], found["reason"], found["message"]


def carried_out(
    experiment: Object, *statuses: Object, search: Decide = experiments.plain
) -> RecordedExperiment:
    """Return the experiment after as many trials as there are statuses."""
    trials: list[Object] = []
    for status in statuses:
        (trial,) = ask(experiment, trials, search=search).trials
        trials.append({**trial, "status": status})
    return RecordedExperiment(experiment, trials)


def told_of(experiment: Object, *recorded: RecordedExperiment) -> list[Earlier]:
    """Return what the search is told of earlier experiments."""
    told: list[Earlier] = []

    def note(*arguments: Any, **more: Any) -> Decision:
        told.extend(arguments[4])
        return experiments.plain(*arguments, **more)

    ask(experiment, earlier=recorded, search=note)
    return told


def test_the_real_search_begins_and_goes_on() -> None:
    found = carried_out(
        experiments.experiment(), measured(100), measured(150), failed("OutOfMemory"), search=decide
    )
    settings = [tuple(s["value"] for s in trial["spec"]["settings"]) for trial in found.trials]
    assert len(set(settings)) == 3


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"tunableParameters": parameters(cpu=["0"])}, "spec.tunableParameters[0]"),
        ({"tunableParameters": parameters(cpus=["1"])}, "cpus is not a parameter of resource"),
        ({"prices": {}}, "spec.prices.cpu"),
    ],
)
def test_what_is_no_space_is_refused_by_its_field(spec: Object, words: str) -> None:
    plan = ask(experiments.experiment(**spec))
    phase, reason, message = ready(plan)
    assert (phase, plan.trials) == ("Failed", ())
    assert reason in {"SpaceInvalid", "PricesMissing"}
    assert words in message


def test_values_of_a_list_are_put_in_whatever_their_suffix() -> None:
    batching = {"name": "batchSize", "feasibleSpace": {"list": ["1", "1k"]}}
    cores = {"name": "gpu.cores", "feasibleSpace": {"list": ["10", "2e1"]}}
    axes = [
        {"category": "batching", "parameters": [batching]},
        {"category": "resource", "parameters": [cores]},
    ]
    plan = ask(experiments.experiment(tunableParameters=axes, prices={"gpu": "1"}, parallelism=4))
    settings = [tuple(s["value"] for s in trial["spec"]["settings"]) for trial in plan.trials]
    assert settings == [("1", "10"), ("1", "20"), ("1000", "10"), ("1000", "20")]


def test_a_spec_that_cannot_be_put_in_is_said_where_the_search_names_it() -> None:
    too_long = "0" * 40 + "1ms"
    timeout = {"name": "timeout", "feasibleSpace": {"list": ["0ms", too_long]}}
    axes = [{"category": "batching", "parameters": [timeout]}]
    limits = {"modelVersion": "v1", "framework": "sklearn", "resources": {"cpu": "1"}}
    experiment = experiments.experiment(tunableParameters=axes, target=limits)
    trials = carried_out(experiment, measured()).trials
    plan = ask(experiment, trials)
    phase, reason, message = ready(plan)
    assert (phase, reason) == ("Failed", "SettingsInvalid")
    assert "batching.timeout" in message


def test_a_model_that_is_not_there_yet_is_waited_for() -> None:
    assert ready(ask(experiments.experiment(), versions=()))[:2] == ("Pending", "TargetNotFound")
    of_inference = experiments.experiment(target={"inference": "digits"})
    assert ready(ask(of_inference))[:2] == ("Pending", "TargetNotFound")


def test_a_predictor_that_the_inference_does_not_have_is_refused() -> None:
    inference = {
        "metadata": {"name": "digits"},
        "spec": {"framework": "sklearn", "predictors": [{"name": "main", "modelVersion": "v1"}]},
    }
    wrong = experiments.experiment(target={"inference": "digits", "predictor": "other"})
    phase, reason, message = ready(ask(wrong, inference=inference))
    assert (phase, reason) == ("Failed", "TargetInvalid")
    assert "spec.target.predictor" in message


def test_an_experiment_whose_target_became_another_fails_once_what_runs_is_over() -> None:
    arm = {"name": "main", "modelVersion": "v1", "resources": {"cpu": "1", "memory": "256Mi"}}
    inference = {"metadata": {"name": "digits"}, "spec": {"framework": "sklearn", "predictors": [arm]}}
    experiment = experiments.experiment(target={"inference": "digits", "predictor": "main"})
    (trial,) = ask(experiment, inference=inference).trials
    renamed = {**inference, "spec": {"framework": "sklearn", "predictors": [{**arm, "name": "other"}]}}

    def said(status: Object) -> Object:
        found = ask(experiment, [{**trial, "status": status}], inference=renamed)
        assert ready(found)[1] == "TargetInvalid"
        return dict(found.status or {})

    running = said({"phase": "Measuring"})
    assert (running["phase"], running["trials"]["running"]) == ("Running", 1)
    over = said(measured())
    assert (over["phase"], over["trials"]["succeeded"]) == ("Failed", 1)
    assert over["spentSeconds"] == 36.0
    assert over["spentCost"] > 0


def test_an_algorithm_that_is_not_installed_is_said() -> None:
    def missing(*arguments: Any, algorithm: str, **more: Any) -> Decision:
        raise errors.Permanent("AlgorithmMissing", f"{algorithm} needs a package")

    found = ask(experiments.experiment(algorithm={"algorithmName": "tpe"}), search=missing)
    assert ready(found) == ("Failed", "AlgorithmMissing", "tpe needs a package")


def test_earlier_experiments_of_the_same_axes_are_told_to_the_search() -> None:
    same = carried_out(experiments.experiment("earlier"), measured(100), measured(120))
    wider = parameters(cpu=["1", "2"], memory=["256Mi"])
    other = carried_out(
        experiments.experiment("other", tunableParameters=parameters(cpu=["1", "2"])), measured(100)
    )
    moved = carried_out(experiments.experiment("moved", tunableParameters=wider), measured(50))
    told = told_of(experiments.experiment(), same, other, moved)
    assert [(earlier.name, len(earlier.observations)) for earlier in told] == [("earlier", 2), ("moved", 1)]
    assert told[1].problem.size == 2


def test_an_earlier_experiment_that_lists_its_parameters_in_another_order_is_told_in_ours() -> None:
    swapped = parameters(memory=["512Mi", "1Gi"], cpu=["1"])
    (told,) = told_of(
        experiments.experiment(),
        carried_out(
            experiments.experiment("swapped", tunableParameters=swapped), measured(), failed("Crashed")
        ),
    )
    rows = [observation.index for observation in told.observations]
    assert told.problem.coordinates[rows].tolist() == [[0.0, 29.0], [0.0, 30.0]]
    assert np.exp(told.problem.log_cost[rows]) == pytest.approx([1.05, 1.1])


def test_constraints_of_earlier_experiments_are_told_by_what_they_limit() -> None:
    error_rate = {"metric": "errorRate", "atMost": "1%"}
    p99 = {"metric": "latency", "percentile": 99, "atMost": "100ms"}
    p50 = {"metric": "latency", "percentile": 50, "atMost": "10ms"}
    wide = {**p99, "atMost": "200ms"}
    ours = experiments.experiment(constraints=[p99, error_rate])
    swapped = carried_out(experiments.experiment("swapped", constraints=[error_rate, p50, wide]), measured())
    none = carried_out(experiments.experiment("none"), measured())
    half = carried_out(
        experiments.experiment("half", constraints=[{**error_rate, "percentile": 50}]), measured()
    )
    told = {earlier.name: earlier for earlier in told_of(ours, swapped, none, half)}
    assert told["swapped"].problem.log_bounds == pytest.approx((math.log(0.2), math.log(0.01)))
    assert told["swapped"].observations[0].margins == pytest.approx((math.log(0.05 / 0.2), -MOST_MARGIN))
    assert {name: one.constraints for name, one in told.items()} == {
        "swapped": (0, 1),
        "none": (),
        "half": (1,),
    }
    assert told["none"].observations[0].margins == ()


def test_the_search_does_not_name_a_spec_that_is_measured_again_anyway() -> None:
    """The load of one of four specs was lost, and the rest has been measured: one trial begins, and not two."""
    experiment = experiments.experiment(parallelism=3)
    first = ask(experiment).trials
    statuses = [measured(), measured(), failed("Interrupted")]
    trials = [{**trial, "status": status} for trial, status in zip(first, statuses, strict=True)]
    again = [trial["spec"]["settings"] for trial in ask(experiment, trials, search=decide).trials]
    assert again[0] == first[2]["spec"]["settings"]
    assert first[2]["spec"]["settings"] not in again[1:]


def test_trials_of_the_model_that_was_served_before_say_nothing_of_the_new_one() -> None:
    def inference(version: str) -> Object:
        arm = {"name": "main", "modelVersion": version, "resources": {"cpu": "1", "memory": "256Mi"}}
        return {"metadata": {"name": "digits"}, "spec": {"framework": "sklearn", "predictors": [arm]}}

    experiment = experiments.experiment(target={"inference": "digits"})
    trials: list[Object] = []
    for throughput in (60, 100, 150):
        (trial,) = ask(experiment, trials, inference=inference("v1")).trials
        trials.append({**trial, "status": measured(throughput)})
    told: list[tuple[int, int]] = []

    def note(*arguments: Any, **more: Any) -> Decision:
        told.append((len(arguments[1]), arguments[3].trials))
        return experiments.plain(*arguments, **more)

    (again,) = ask(experiment, trials, versions=("v1", "v2"), inference=inference("v2"), search=note).trials
    assert (again["spec"]["purpose"], again["spec"]["modelVersion"]) == ("Baseline", "v2")
    assert told == []
    trials.append({**again, "status": measured(80)})
    plan = ask(experiment, trials, versions=("v1", "v2"), inference=inference("v2"), search=note)
    assert told == [(1, 7)], "of ten trials three are spent, and one of the rest is known"
    assert plan.status is not None
    assert "3 measured the previous model" in ready(plan)[2]

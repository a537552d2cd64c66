"""From objects to a plan, with the real search: errors name their field, and earlier experiments are used."""

import datetime as dt
import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from serving import engines, errors
from serving.objects import Object
from serving.planning.models.volume import VolumeSource
from serving.resources.engine import Engine
from serving.resources.kubernetes.cluster_versions import ClusterVersions, NodeVersions
from serving.settings import DEFAULTS as SERVING
from serving.settings import RuntimeImageSettings
from tests.fakes.surroundings import blocked_version, ready_version
from tests.objects.tuning import experiments
from tests.objects.tuning.experiments import failed, measured, parameters
from tuner.experiment_plan import Decide, make_plan
from tuner.observation import MOST_MARGIN
from tuner.planning.exchange import ExperimentPlan, PlanRequest, RecordedExperiment
from tuner.search.decision_values import Decision
from tuner.search.next_decision import decide
from tuner.search.problem import Earlier
from tuner.settings import DEFAULTS

NOW = dt.datetime(2026, 1, 1, 0, 10, tzinfo=dt.UTC)


def plan_of(
    experiment: Object,
    trials: Sequence[Object] = (),
    *,
    versions: Sequence[str] = ("v1",),
    blocked: Sequence[str] = (),
    inference: Object | None = None,
    earlier: Sequence[RecordedExperiment] = (),
    search: Decide = experiments.plain,
    images: RuntimeImageSettings = SERVING.runtime_images,
    volume: VolumeSource = "image",
    cluster: ClusterVersions | None = None,
    known_engines: Mapping[str, Engine] = MappingProxyType({}),
) -> ExperimentPlan:
    known = {name: blocked_version(name) if name in blocked else ready_version(name) for name in versions}
    request = PlanRequest(
        RecordedExperiment(experiment, trials),
        inference,
        known,
        earlier,
        DEFAULTS,
        known_engines,
        images,
        volume,
        cluster or ClusterVersions(),
    )
    return make_plan(request, NOW, search)


def ready(plan: ExperimentPlan) -> tuple[str, str, str]:
    assert plan.status is not None
    condition = next(c for c in plan.status["conditions"] if c["type"] == "Ready")
    return plan.status["phase"], condition["reason"], condition["message"]


def test_an_experiment_with_a_blocked_version_starts_no_trial_and_has_the_reason() -> None:
    plan = plan_of(experiments.experiment(), blocked=["v1"])
    assert plan.trials == ()
    phase, reason, message = ready(plan)
    assert (phase, reason) == ("Pending", "ModelVersionBlocked")
    assert "ModelVersion v1 is blocked: model.pkl (Pickle) contains code" in message


def carried_out(
    experiment: Object, *statuses: Object, search: Decide = experiments.plain
) -> RecordedExperiment:
    """Return the experiment after one trial for each status."""
    trials: list[Object] = []
    for status in statuses:
        (trial,) = plan_of(experiment, trials, search=search).trials
        trials.append({**trial, "status": status})
    return RecordedExperiment(experiment, trials)


def given_to_search(experiment: Object, *recorded: RecordedExperiment) -> list[Earlier]:
    """Return the earlier experiments that the search receives."""
    experiments_given: list[Earlier] = []

    def note(*arguments: Any, **more: Any) -> Decision:
        experiments_given.extend(arguments[4])
        return experiments.plain(*arguments, **more)

    plan_of(experiment, earlier=recorded, search=note)
    return experiments_given


def test_trial_runs_the_image_of_the_settings() -> None:
    images = RuntimeImageSettings(prefix="registry.corp/slipway", tag="1.2.0")
    (trial,) = plan_of(experiments.experiment(), images=images).trials
    (container,) = trial["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "registry.corp/slipway/sklearn:1.2.0"


@pytest.mark.parametrize(
    ("argument", "note"),
    [
        ("max-num-batched-tokens", ""),
        ("--max-num-batched-tokens", ""),
        ("max_num_batched_tokens", ""),
        ("max-num-batch-tokens", "args: --max-num-batch-tokens: not among the tunables of vllm, which are "),
    ],
)
def test_space_names_an_argument_that_the_manifest_of_the_engine_does_not_list(
    argument: str, note: str
) -> None:
    values = {"name": argument, "parameterType": "int", "feasibleSpace": {"list": ["2048", "4096"]}}
    experiment = experiments.experiment(
        target={"modelVersion": "v1", "framework": "vllm"},
        tunableParameters=[*parameters(cpu=["1", "2"]), {"category": "args", "parameters": [values]}],
        prices={"cpu": "1"},
    )
    plan = plan_of(experiment, known_engines=engines.shipped())
    assert plan.trials
    assert plan.status is not None
    space = next(each for each in plan.status["conditions"] if each["type"] == "SpaceValid")
    assert (space["status"], space["reason"]) == ("True", "Valid")
    assert space["message"].startswith(note)
    assert bool(space["message"]) == bool(note)


def test_trial_copies_the_model_where_the_cluster_has_no_image_volumes() -> None:
    (trial,) = plan_of(experiments.experiment(), volume="copy").trials
    (container,) = trial["spec"]["template"]["spec"]["initContainers"]
    assert container["name"] == "copy-model"


def gpu_limits(trial: Object) -> Object:
    (container,) = trial["spec"]["template"]["spec"]["containers"]
    limits = container["resources"]["limits"].items()
    return {name: amount for name, amount in limits if name.startswith("nvidia.com/")}


def test_trials_have_the_gpu_mechanism_of_the_nodes_and_then_that_of_the_first_trial() -> None:
    experiment = experiments.experiment(
        tunableParameters=parameters(**{"gpu.memory": ["4Gi", "8Gi"]}),
        prices={"gpu": "1", "gpuMemory": "80Gi"},
    )
    hami = NodeVersions(
        "linux", "v1.36.0", "containerd://2.1.4", frozenset({"nvidia.com/gpu", "nvidia.com/gpumem"})
    )
    (first,) = plan_of(experiment, cluster=ClusterVersions("v1.36.0", {"a": hami})).trials
    assert gpu_limits(first).keys() == {"nvidia.com/gpu", "nvidia.com/gpumem"}
    started = {**measured(), "startSeconds": 3.0}
    (second,) = plan_of(experiment, [{**first, "status": started}]).trials
    assert gpu_limits(second).keys() == {"nvidia.com/gpu", "nvidia.com/gpumem"}
    (without_nodes,) = plan_of(experiment).trials
    assert gpu_limits(without_nodes) == {"nvidia.com/gpu": "1"}
    # Its mechanism was an assumption, and no replica has shown that it can be had.
    not_started = {**without_nodes, "status": failed("NotReady")}
    (after_it,) = plan_of(experiment, [not_started], cluster=ClusterVersions("v1.36.0", {"a": hami})).trials
    assert gpu_limits(after_it).keys() == {"nvidia.com/gpu", "nvidia.com/gpumem"}


def test_trials_have_the_gpu_mechanism_that_nodes_offer_for_any_spec_of_the_space() -> None:
    target = {**experiments.experiment()["spec"]["target"]}
    gpu = {"memory": "4Gi", "type": "A100-40GB"}
    target["resources"] = {**(target.get("resources") or {}), "gpu": gpu}
    experiment = experiments.experiment(
        target=target,
        tunableParameters=parameters(**{"gpu.memory": ["4Gi", "16Gi"]}),
        prices={"gpu": "1", "gpuMemory": "40Gi"},
    )
    offered = frozenset({"nvidia.com/mig-3g.20gb"})
    mig = NodeVersions("linux", "v1.36.0", "containerd://2.1.4", offered)
    (first,) = plan_of(experiment, cluster=ClusterVersions("v1.36.0", {"a": mig})).trials
    assert all(name.startswith("nvidia.com/mig-") for name in gpu_limits(first))


def test_todays_spec_is_measured_when_it_has_no_gpu_and_its_mechanism_does_not_share_cores_alone() -> None:
    inference: Object = {
        "metadata": {"name": "digits", "namespace": "default"},
        "spec": {
            "framework": "sklearn",
            "predictors": [{"name": "main", "modelVersion": "v1", "resources": {"cpu": "1"}}],
        },
    }
    experiment = experiments.experiment(
        target={"inference": "digits"},
        tunableParameters=parameters(
            cpu=["1", "2"], **{"gpu.memory": ["4Gi", "8Gi"], "gpu.cores": ["30", "60"]}
        ),
        prices={"cpu": "1", "gpu": "1", "gpuMemory": "80Gi"},
    )
    ack = NodeVersions(
        "linux",
        "v1.36.0",
        "containerd://2.1.4",
        frozenset({"aliyun.com/gpu-mem", "aliyun.com/gpu-core.percentage"}),
        {"ack.node.gpu.schedule": "core_mem"},
    )
    plan = plan_of(experiment, inference=inference, cluster=ClusterVersions("v1.36.0", {"a": ack}))
    assert [trial["spec"]["purpose"] for trial in plan.trials] == ["Baseline"], ready(plan)
    (trial,) = plan.trials
    assert [(each["name"], each["value"]) for each in trial["spec"]["settings"]] == [("cpu", "1")]


def test_plans_with_the_real_search_begin_and_continue() -> None:
    plan = carried_out(
        experiments.experiment(), measured(100), measured(150), failed("OutOfMemory"), search=decide
    )
    settings = [tuple(s["value"] for s in trial["spec"]["settings"]) for trial in plan.trials]
    assert len(set(settings)) == 3


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"tunableParameters": parameters(cpu=["0"])}, "spec.tunableParameters[0]"),
        ({"tunableParameters": parameters(cpus=["1"])}, "cpus is not a parameter of resource"),
        ({"prices": {}}, "spec.prices.cpu"),
    ],
)
def test_invalid_space_fails_the_experiment_with_its_field(spec: Object, words: str) -> None:
    plan = plan_of(experiments.experiment(**spec))
    phase, reason, message = ready(plan)
    assert (phase, plan.trials) == ("Failed", ())
    assert reason in {"SpaceInvalid", "PricesMissing"}
    assert words in message


SHARE = {"memory": "4Gi", "cores": 10}
LIMITED = {"name": "predictor", "resources": {"limits": {"cpu": "a lot"}}}


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"prices": {"gpu": "1", "gpuMemory": "0"}}, "spec.prices.gpuMemory: must be above 0, got '0'"),
        ({"prices": {"gpu": "1", "gpuMemory": "1e99"}}, "spec.prices.gpuMemory: '1e99' is too large"),
        ({"gpu": {"cores": 10}, "prices": {"gpu": "1", "gpuMemory": "0"}}, "spec.prices.gpuMemory: must be"),
        ({"memory": "1e99"}, "resources.memory of a container: '1e99' is too large"),
        ({"template": {"containers": [LIMITED]}}, "resources.cpu of a container: 'a lot' is not a quantity"),
    ],
    ids=["gpuMemory 0", "gpuMemory 1e99", "no share", "memory", "template"],
)
@pytest.mark.parametrize("volume", ["image", "copy"])
def test_experiment_fails_with_the_field_when_its_cost_cannot_be_computed(
    fields: Object, words: str, volume: VolumeSource
) -> None:
    """The API refuses most of them; experiments of earlier releases have them."""
    resources: Object = {"cpu": "1", "memory": fields.get("memory", "1Gi"), "gpu": fields.get("gpu", SHARE)}
    target = {"modelVersion": "v1", "framework": "sklearn", "resources": resources}
    if "template" in fields:
        target["template"] = fields["template"]
    experiment = experiments.experiment(
        target=target,
        tunableParameters=parameters(**{"gpu.cores": ["10", "20"]}),
        prices=fields.get("prices", {"gpu": "1"}),
    )
    phase, reason, message = ready(plan_of(experiment, volume=volume))
    expected = "PricesMissing" if words.startswith("spec.prices") else "TargetInvalid"
    assert (phase, reason) == ("Failed", expected), message
    assert words in message


@pytest.mark.parametrize(
    ("resources", "words"),
    [
        ({"requests": {"cpu": "1e99"}, "limits": {"cpu": "1"}}, "resources.requests.cpu"),
        ({"limits": {"cpu": "1", "ephemeral-storage": "1e99"}}, "resources.limits.ephemeral-storage"),
    ],
    ids=["request", "storage"],
)
def test_experiment_fails_with_the_field_when_an_amount_without_a_price_is_no_quantity(
    resources: Object, words: str
) -> None:
    container = {"name": "predictor", "resources": resources}
    arm: Object = {"name": "main", "modelVersion": "v1", "template": {"containers": [container]}}
    inference = {"metadata": {"name": "digits"}, "spec": {"framework": "sklearn", "predictors": [arm]}}
    experiment = experiments.experiment(target={"inference": "digits", "predictor": "main"})
    phase, reason, message = ready(plan_of(experiment, inference=inference))
    assert (phase, reason) == ("Failed", "TargetInvalid"), message
    assert f"{words} of container predictor: '1e99' is too large" in message


def test_listed_values_are_applied_with_any_suffix() -> None:
    batching = {"name": "batchSize", "feasibleSpace": {"list": ["1", "1k"]}}
    cores = {"name": "gpu.cores", "feasibleSpace": {"list": ["10", "2e1"]}}
    axes = [
        {"category": "batching", "parameters": [batching]},
        {"category": "resource", "parameters": [cores]},
    ]
    plan = plan_of(experiments.experiment(tunableParameters=axes, prices={"gpu": "1"}, parallelism=4))
    settings = [tuple(s["value"] for s in trial["spec"]["settings"]) for trial in plan.trials]
    assert settings == [("1", "10"), ("1", "20"), ("1000", "10"), ("1000", "20")]


def test_spec_that_cannot_be_rendered_is_an_error_once_the_search_chooses_it() -> None:
    too_long = "0" * 40 + "1ms"
    timeout = {"name": "timeout", "feasibleSpace": {"list": ["0ms", too_long]}}
    axes = [{"category": "batching", "parameters": [timeout]}]
    limits = {"modelVersion": "v1", "framework": "sklearn", "resources": {"cpu": "1"}}
    experiment = experiments.experiment(tunableParameters=axes, target=limits)
    trials = carried_out(experiment, measured()).trials
    plan = plan_of(experiment, trials)
    phase, reason, message = ready(plan)
    assert (phase, reason) == ("Failed", "SettingsInvalid")
    assert "batching.timeout" in message


def test_missing_model_leaves_the_experiment_pending() -> None:
    assert ready(plan_of(experiments.experiment(), versions=()))[:2] == ("Pending", "TargetNotFound")
    of_inference = experiments.experiment(target={"inference": "digits"})
    assert ready(plan_of(of_inference))[:2] == ("Pending", "TargetNotFound")


def test_predictor_that_the_inference_lacks_fails_the_experiment() -> None:
    inference = {
        "metadata": {"name": "digits"},
        "spec": {"framework": "sklearn", "predictors": [{"name": "main", "modelVersion": "v1"}]},
    }
    wrong = experiments.experiment(target={"inference": "digits", "predictor": "other"})
    phase, reason, message = ready(plan_of(wrong, inference=inference))
    assert (phase, reason) == ("Failed", "TargetInvalid")
    assert "spec.target.predictor" in message


def test_invalid_target_fails_the_experiment_once_running_trials_have_ended() -> None:
    arm = {"name": "main", "modelVersion": "v1", "resources": {"cpu": "1", "memory": "256Mi"}}
    inference = {"metadata": {"name": "digits"}, "spec": {"framework": "sklearn", "predictors": [arm]}}
    experiment = experiments.experiment(target={"inference": "digits", "predictor": "main"})
    (trial,) = plan_of(experiment, inference=inference).trials
    renamed = {**inference, "spec": {"framework": "sklearn", "predictors": [{**arm, "name": "other"}]}}

    def status_after(status: Object) -> Object:
        plan = plan_of(experiment, [{**trial, "status": status}], inference=renamed)
        assert ready(plan)[1] == "TargetInvalid"
        return dict(plan.status or {})

    running = status_after({"phase": "Measuring"})
    assert (running["phase"], running["trials"]["running"]) == ("Running", 1)
    over = status_after(measured())
    assert (over["phase"], over["trials"]["succeeded"]) == ("Failed", 1)
    assert over["spentSeconds"] == 36.0
    assert over["spentCost"] > 0


def test_algorithm_that_is_not_installed_fails_the_experiment() -> None:
    def missing(*arguments: Any, algorithm: str, **more: Any) -> Decision:
        raise errors.Permanent("AlgorithmMissing", f"{algorithm} needs a package")

    plan = plan_of(experiments.experiment(algorithm={"algorithmName": "tpe"}), search=missing)
    assert ready(plan) == ("Failed", "AlgorithmMissing", "tpe needs a package")


def test_search_gets_earlier_experiments_of_the_same_axes() -> None:
    same = carried_out(experiments.experiment("earlier"), measured(100), measured(120))
    wider = parameters(cpu=["1", "2"], memory=["256Mi"])
    other = carried_out(
        experiments.experiment("other", tunableParameters=parameters(cpu=["1", "2"])), measured(100)
    )
    moved = carried_out(experiments.experiment("moved", tunableParameters=wider), measured(50))
    given = given_to_search(experiments.experiment(), same, other, moved)
    assert [(earlier.name, len(earlier.observations)) for earlier in given] == [("earlier", 2), ("moved", 1)]
    assert given[1].problem.size == 2


def test_search_gets_earlier_experiments_with_axes_in_our_order() -> None:
    swapped = parameters(memory=["512Mi", "1Gi"], cpu=["1"])
    (earlier,) = given_to_search(
        experiments.experiment(),
        carried_out(
            experiments.experiment("swapped", tunableParameters=swapped), measured(), failed("Crashed")
        ),
    )
    rows = [observation.index for observation in earlier.observations]
    assert earlier.problem.coordinates[rows].tolist() == [[0.0, 29.0], [0.0, 30.0]]
    assert np.exp(earlier.problem.log_cost[rows]) == pytest.approx([1.05, 1.1])


def test_search_gets_earlier_experiments_at_its_own_prices() -> None:
    cheap, dear = {"cpu": "1", "memory": "0.1"}, {"cpu": "2", "memory": "0.2"}
    before = carried_out(experiments.experiment("before", prices=cheap), measured(100))
    at_old, at_new = (
        given_to_search(experiments.experiment(prices=prices), before)[0] for prices in (cheap, dear)
    )
    assert at_new.problem.log_cost == pytest.approx(at_old.problem.log_cost + math.log(2))
    objectives = [earlier.observations[0].log_objective for earlier in (at_old, at_new)]
    assert objectives[1] == pytest.approx(objectives[0] - math.log(2))


def test_search_gets_constraints_of_earlier_experiments_by_metric_and_percentile() -> None:
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
    given = {earlier.name: earlier for earlier in given_to_search(ours, swapped, none, half)}
    assert given["swapped"].problem.log_bounds == pytest.approx((math.log(0.2), math.log(0.01)))
    assert given["swapped"].observations[0].margins == pytest.approx((math.log(0.05 / 0.2), -MOST_MARGIN))
    assert {name: experiment.constraints for name, experiment in given.items()} == {
        "swapped": (0, 1),
        "none": (),
        "half": (1,),
    }
    assert given["none"].observations[0].margins == ()


def test_search_does_not_choose_a_spec_that_is_repeated() -> None:
    """The load of one of four specs failed, and the others were measured: one trial begins, and not two."""
    experiment = experiments.experiment(parallelism=3)
    first = plan_of(experiment).trials
    statuses = [measured(), measured(), failed("Interrupted")]
    trials = [{**trial, "status": status} for trial, status in zip(first, statuses, strict=True)]
    again = [trial["spec"]["settings"] for trial in plan_of(experiment, trials, search=decide).trials]
    assert again[0] == first[2]["spec"]["settings"]
    assert first[2]["spec"]["settings"] not in again[1:]


def test_trials_of_the_previous_model_are_no_observations_and_count_in_the_budget() -> None:
    def inference(version: str) -> Object:
        arm = {"name": "main", "modelVersion": version, "resources": {"cpu": "1", "memory": "256Mi"}}
        return {"metadata": {"name": "digits"}, "spec": {"framework": "sklearn", "predictors": [arm]}}

    experiment = experiments.experiment(target={"inference": "digits"})
    trials: list[Object] = []
    for throughput in (60, 100, 150):
        (trial,) = plan_of(experiment, trials, inference=inference("v1")).trials
        trials.append({**trial, "status": measured(throughput)})
    calls: list[tuple[int, int]] = []

    def note(*arguments: Any, **more: Any) -> Decision:
        calls.append((len(arguments[1]), arguments[3].trials))
        return experiments.plain(*arguments, **more)

    (again,) = plan_of(
        experiment, trials, versions=("v1", "v2"), inference=inference("v2"), search=note
    ).trials
    assert (again["spec"]["purpose"], again["spec"]["modelVersion"]) == ("Baseline", "v2")
    assert calls == []
    trials.append({**again, "status": measured(80)})
    plan = plan_of(experiment, trials, versions=("v1", "v2"), inference=inference("v2"), search=note)
    assert calls == [(1, 7)], "ten trials in the budget, three unknown to the search, one observation"
    assert plan.status is not None
    assert "3 measured the previous model" in ready(plan)[2]

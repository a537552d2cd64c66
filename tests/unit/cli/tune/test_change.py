"""What `slipway tune apply` changes, and what it refuses to."""

from typing import Any

import pytest

from serving import errors
from serving.cli.tune import change
from serving.objects import Object
from serving.resources.experiment import TuningTarget
from serving.resources.inference import Predictor
from tests.objects.tuned_experiments import condition, experiment, experiment_spec, recommendation, trial
from tuner.specs import rendering

SPEC = ("500m", "512Mi", "16", "1")
VERSION = {
    "metadata": {"name": "v1"}, "spec": {"modelName": "digits"},
    "status": {"image": "slipway.local/default/digits@sha256:1", "digest": "sha256:1"},
}  # fmt: skip


def inference(**candidate: Any) -> Object:
    resources = {"cpu": "1", "memory": "1Gi"}
    arms = [
        {"name": "stable", "modelVersion": "v0"},
        {"name": "candidate", "modelVersion": "v1", "resources": resources, **candidate},
    ]
    return {"metadata": {"name": "digits"}, "spec": {"framework": "sklearn", "predictors": arms}}


def tuning() -> change.Tuning:
    return change.of(experiment(phase="Succeeded", recommendation=recommendation(*SPEC)))


def source(found: Object) -> rendering.Source:
    return rendering.source(tuning().spec.target, found)


def measured(found: Object) -> Object:
    template = rendering.pod(source(found), VERSION, tuning().settings, tuning().prices).template
    return trial(3, *SPEC, template=template)


def applied(found: Object) -> tuple[Predictor, Predictor]:
    before = source(found)
    return before.predictor, rendering.tuned(before, tuning().settings)


def test_only_what_was_tuned_changes_and_the_arms_place_is_tested() -> None:
    found = inference()
    name, *changes = change.operations(found, source(found), applied(found)[1])
    assert name == {"op": "test", "path": "/spec/predictors/1/name", "value": "candidate"}
    assert [(change["op"], change["path"]) for change in changes] == [
        ("add", "/spec/predictors/1/resources"),
        ("add", "/spec/predictors/1/batching"),
        ("add", "/spec/predictors/1/template"),
    ]
    assert changes[0]["value"] == {"cpu": "500m", "memory": "512Mi"}
    assert changes[1]["value"]["batchSize"] == 16


def test_what_is_applied_already_changes_nothing() -> None:
    found = inference()
    after = applied(found)[1].model_dump(by_alias=True, exclude_none=True)
    again = inference(**{key: after[key] for key in ("resources", "batching", "template")})
    assert change.operations(again, source(again), applied(again)[1]) == []
    assert change.diff(*applied(again)) == ""
    change.check(tuning(), source(again), VERSION, measured(found))


def test_the_diff_names_each_field_with_both_values() -> None:
    rows = [line.split() for line in change.diff(*applied(inference())).splitlines()]
    assert rows[0] == ["FIELD", "NOW", "TUNED"]
    assert len(rows) == 5
    assert ["resources.cpu", "1", "500m"] in rows
    assert ["batching.batchSize", "-", "16"] in rows
    assert ["template.containers[predictor].env[OMP_NUM_THREADS].value", "-", "1"] in rows
    assert all("trafficWeight" not in row[0] for row in rows)


def test_another_model_version_than_was_measured_is_refused_by_name() -> None:
    other = {**VERSION, "metadata": {"name": "v2"}}
    with pytest.raises(errors.UserError, match="serves v2 now, and v1 was measured"):
        change.check(tuning(), source(inference(modelVersion="v2")), other, measured(inference()))


def test_a_predictor_that_changed_elsewhere_is_refused_with_the_field() -> None:
    more = {"template": {"containers": [{"name": "predictor", "env": [{"name": "X", "value": "y"}]}]}}
    with pytest.raises(errors.UserError, match=r"env\[X\]\.value") as refused:
        change.check(tuning(), source(inference(**more)), VERSION, measured(inference()))
    assert "--force" in str(refused.value)


def test_a_change_of_what_was_tuned_itself_is_no_reason_to_refuse() -> None:
    other = inference(resources={"cpu": "4", "memory": "8Gi"}, batching={"batchSize": 4})
    change.check(tuning(), source(other), VERSION, measured(inference()))


def test_a_trial_that_is_gone_cannot_vouch() -> None:
    with pytest.raises(errors.UserError, match="digits-3, which measured the spec, was deleted"):
        change.check(tuning(), source(inference()), VERSION, None)


@pytest.mark.parametrize(
    ("phase", "words"),
    [
        ("Running", "experiment digits has no recommendation yet: Running, Because: it is so"),
        ("Failed", "experiment digits has ended without a recommendation: Because: it is so"),
    ],
)
def test_without_a_recommendation_it_says_why(phase: str, words: str) -> None:
    with pytest.raises(errors.UserError, match=words):
        change.of(experiment(phase=phase, conditions=[condition("False", "Because", "it is so")]))


def test_money_is_compared_with_what_runs_now() -> None:
    assert change.worth(tuning(), source(inference()), VERSION) == (
        "a replica costs 0.0225 an hour instead of 0.045, 50% less; "
        "a million requests cost 0.0546 (0.0532 to 0.0559), measured by digits-3"
    )


def test_a_recommendation_without_an_objective_says_no_value() -> None:
    unknown = recommendation(*SPEC, objective=0.0, low=0.0, high=0.0)
    found = change.of(experiment(phase="Succeeded", recommendation=unknown))
    words = change.worth(found, source(inference()), VERSION)
    assert words.endswith("50% less; measured by digits-3")


def test_what_an_unlimited_replica_costs_is_not_known() -> None:
    words = change.worth(tuning(), source(inference(resources={"memory": "1Gi"})), VERSION)
    assert "today it has no limit of cpu, so its cost is unknown" in words


def test_of_a_model_version_of_which_nothing_runs_nothing_of_today_is_said() -> None:
    of_version = {**experiment(phase="Succeeded", recommendation=recommendation(*SPEC))}
    of_version["spec"] = {**of_version["spec"], "target": {"modelVersion": "v1", "framework": "sklearn"}}
    found = change.of(of_version)
    words = change.worth(found, rendering.source(found.spec.target, None), VERSION)
    assert words.startswith("a replica costs 0.0225 an hour; ")


def test_of_a_model_version_an_inference_is_made_with_what_was_tuned_alone() -> None:
    target = TuningTarget.model_validate({"modelVersion": "v1", "framework": "sklearn"})
    of_version = rendering.source(target, None)
    made = change.manifest("digits", "default", of_version, rendering.tuned(of_version, tuning().settings))
    (predictor,) = made["spec"]["predictors"]
    assert (made["kind"], made["spec"]["framework"]) == ("Inference", "sklearn")
    assert predictor == {
        "name": "stable", "modelVersion": "v1", "resources": {"cpu": "500m", "memory": "512Mi"},
        "batching": {"batchSize": 16},
        "template": {"containers": [{"name": "predictor", "env": [{"name": "OMP_NUM_THREADS", "value": "1"}]}]},
    }  # fmt: skip


def test_the_experiments_of_these_tests_are_valid() -> None:
    assert tuning().spec.max_num_trials == experiment_spec()["maxNumTrials"]

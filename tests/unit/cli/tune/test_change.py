"""The change that `slipway tune apply` makes, and the changes that it refuses."""

from dataclasses import replace
from typing import Any

import pytest

from serving import errors
from serving.cli.tune import change
from serving.objects import Object
from serving.resources.inference import Predictor
from serving.resources.tuning.experiment import TuningTarget
from serving.settings import RuntimeImageSettings
from tests.objects.tuning.tuned_experiments import (
    condition,
    experiment,
    experiment_spec,
    recommendation,
    trial,
)
from tuner.specs import rendering

SPEC = ("500m", "512Mi", "16", "1")
VERSION = {
    "metadata": {"name": "v1"},
    "spec": {"modelName": "digits"},
    "status": {"image": "slipway.local/default/digits@sha256:1", "digest": "sha256:1"},
}


def inference(**canary: Any) -> Object:
    resources = {"cpu": "1", "memory": "1Gi"}
    arms = [
        {"name": "stable", "modelVersion": "v0"},
        {"name": "canary", "modelVersion": "v1", "resources": resources, **canary},
    ]
    return {"metadata": {"name": "digits"}, "spec": {"framework": "sklearn", "predictors": arms}}


def tuning() -> change.TuningResult:
    return change.recommendation_of(experiment(phase="Succeeded", recommendation=recommendation(*SPEC)))


def tuned_target(deployed: Object) -> rendering.TunedTarget:
    return rendering.tuned_target(tuning().spec.target, deployed, {})


def measured(deployed: Object) -> Object:
    template = rendering.pod(tuned_target(deployed), VERSION, tuning().settings, tuning().prices).template
    return trial(3, *SPEC, template=template)


def applied(deployed: Object) -> tuple[Predictor, Predictor]:
    before = tuned_target(deployed)
    return before.predictor, rendering.tuned(before, tuning().settings)


def test_the_patch_has_tuned_fields_only_and_tests_the_position() -> None:
    deployed = inference()
    name, *changes = change.operations(deployed, tuned_target(deployed), applied(deployed)[1])
    assert name == {"op": "test", "path": "/spec/predictors/1/name", "value": "canary"}
    assert [(change["op"], change["path"]) for change in changes] == [
        ("add", "/spec/predictors/1/resources"),
        ("add", "/spec/predictors/1/batching"),
        ("add", "/spec/predictors/1/template"),
    ]
    assert changes[0]["value"] == {"cpu": "500m", "memory": "512Mi"}
    assert changes[1]["value"]["batchSize"] == 16


def test_the_patch_is_empty_when_the_spec_is_applied_already() -> None:
    deployed = inference()
    after = applied(deployed)[1].model_dump(by_alias=True, exclude_none=True)
    again = inference(**{key: after[key] for key in ("resources", "batching", "template")})
    assert change.operations(again, tuned_target(again), applied(again)[1]) == []
    assert change.diff(*applied(again)) == ""
    change.check(tuning(), tuned_target(again), VERSION, measured(deployed))


def test_the_diff_names_each_field_with_both_values() -> None:
    rows = [line.split() for line in change.diff(*applied(inference())).splitlines()]
    assert rows[0] == ["FIELD", "NOW", "TUNED"]
    assert len(rows) == 5
    assert ["resources.cpu", "1", "500m"] in rows
    assert ["batching.batchSize", "-", "16"] in rows
    assert ["template.containers[predictor].env[OMP_NUM_THREADS].value", "-", "1"] in rows
    assert all("trafficWeight" not in row[0] for row in rows)


def test_a_model_version_that_was_not_measured_is_refused_by_name() -> None:
    other = {**VERSION, "metadata": {"name": "v2"}}
    with pytest.raises(errors.UserError, match="serves v2 now, and v1 was measured"):
        change.check(tuning(), tuned_target(inference(modelVersion="v2")), other, measured(inference()))


def test_a_predictor_is_refused_when_its_model_version_has_changed_since_it_was_read() -> None:
    with pytest.raises(errors.UserError, match="serves v2 now, and v1 was measured"):
        change.check(tuning(), tuned_target(inference(modelVersion="v2")), VERSION, measured(inference()))


def test_a_predictor_is_refused_when_an_untuned_field_has_changed() -> None:
    more = {"template": {"containers": [{"name": "predictor", "env": [{"name": "X", "value": "y"}]}]}}
    with pytest.raises(errors.UserError, match=r"env\[X\]\.value") as refused:
        change.check(tuning(), tuned_target(inference(**more)), VERSION, measured(inference()))
    assert "--force" in str(refused.value)


@pytest.mark.parametrize(
    ("before", "after", "path"),
    [
        (
            {"ports": [{"name": "http", "containerPort": 8080}]},
            {"ports": [{"name": "http", "containerPort": 9090}]},
            r"ports\[http\]\.containerPort",
        ),
        (
            {"volumeMounts": [{"name": "cache", "mountPath": "/a"}]},
            {"volumeMounts": [{"name": "cache", "mountPath": "/b"}]},
            r"volumeMounts\[cache\]\.mountPath",
        ),
        (
            {"volumeMounts": [{"name": "c", "mountPath": "/a"}, {"name": "c", "mountPath": "/b"}]},
            {"volumeMounts": [{"name": "c", "mountPath": "/x"}, {"name": "c", "mountPath": "/b"}]},
            r"volumeMounts\[/[ax]\]",
        ),
    ],
)
def test_a_predictor_is_refused_when_a_port_or_mount_of_one_name_has_changed(
    before: Object, after: Object, path: str
) -> None:
    def deployed(fields: Object) -> Object:
        return inference(template={"containers": [{"name": "predictor", **fields}]})

    with pytest.raises(errors.UserError, match=path):
        change.check(tuning(), tuned_target(deployed(after)), VERSION, measured(deployed(before)))


def test_a_predictor_is_accepted_when_only_tuned_fields_have_changed() -> None:
    other = inference(resources={"cpu": "4", "memory": "8Gi"}, batching={"batchSize": 4})
    change.check(tuning(), tuned_target(other), VERSION, measured(inference()))


def of_cluster(deployed: Object) -> Object:
    images = RuntimeImageSettings("registry.corp/slipway", "1.2.0", "Always", "login")
    target = replace(tuned_target(deployed), images=images, volume="copy")
    return trial(
        3, *SPEC, template=rendering.pod(target, VERSION, tuning().settings, tuning().prices).template
    )


def test_a_predictor_is_accepted_when_the_cluster_has_other_images_and_copies_models() -> None:
    change.check(tuning(), tuned_target(inference()), VERSION, of_cluster(inference()))


def test_a_predictor_is_accepted_when_the_cluster_has_chosen_another_gpu_mechanism() -> None:
    deployed = inference(resources={"cpu": "1", "memory": "1Gi", "gpu": {"memory": "4Gi"}})
    target = replace(tuned_target(deployed), mechanism="hami")
    template = rendering.pod(target, VERSION, tuning().settings, tuning().prices).template
    change.check(tuning(), tuned_target(deployed), VERSION, trial(3, *SPEC, template=template))
    named = inference(resources={"cpu": "1", "memory": "1Gi", "gpu": {"memory": "4Gi", "mechanism": "mps"}})
    with pytest.raises(errors.UserError, match=r"slipway\.dev/gpu"):
        change.check(tuning(), tuned_target(named), VERSION, trial(3, *SPEC, template=template))


def test_a_predictor_is_refused_when_its_template_has_another_image() -> None:
    own = inference(template={"containers": [{"name": "predictor", "image": "mine"}]})
    with pytest.raises(errors.UserError, match=r"containers\[predictor\]\.image"):
        change.check(tuning(), tuned_target(own), VERSION, of_cluster(inference()))


def test_a_recommendation_is_refused_when_its_trial_was_deleted() -> None:
    with pytest.raises(errors.UserError, match="digits-3, which measured the spec, was deleted"):
        change.check(tuning(), tuned_target(inference()), VERSION, None)


@pytest.mark.parametrize(
    ("phase", "words"),
    [
        ("Running", "experiment digits has no recommendation yet: Running, Because: it is so"),
        ("Failed", "experiment digits has ended without a recommendation: Because: it is so"),
    ],
)
def test_a_missing_recommendation_is_an_error_with_the_reason(phase: str, words: str) -> None:
    with pytest.raises(errors.UserError, match=words):
        change.recommendation_of(
            experiment(phase=phase, conditions=[condition("False", "Because", "it is so")])
        )


def test_cost_is_compared_with_the_current_replica() -> None:
    assert change.describe_savings(tuning(), tuned_target(inference()), VERSION) == (
        "a replica costs 0.0225 an hour instead of 0.045, 50% less; "
        "a million requests cost 0.0546 (0.0532 to 0.0559), measured by digits-3"
    )


def test_a_recommendation_that_is_not_settled_is_applied_with_a_warning() -> None:
    few = experiment(
        phase="Succeeded",
        specs=96,
        trials={"total": 6},
        expectedRegret=0.46,
        recommendation=recommendation(*SPEC),
    )
    tuned = change.recommendation_of(few)
    _, warning = change.describe_savings(tuned, tuned_target(inference()), VERSION).splitlines()
    assert warning == "Not settled after 6 trials: expected regret 46 %; run 14 more trials"


def test_an_unknown_objective_is_not_shown() -> None:
    unknown = recommendation(*SPEC, objective=0.0, low=0.0, high=0.0)
    tuned = change.recommendation_of(experiment(phase="Succeeded", recommendation=unknown))
    words = change.describe_savings(tuned, tuned_target(inference()), VERSION)
    assert words.endswith("50% less; measured by digits-3")


def test_cost_of_a_replica_without_limits_is_unknown() -> None:
    words = change.describe_savings(tuning(), tuned_target(inference(resources={"memory": "1Gi"})), VERSION)
    assert "today it has no limit of cpu, so its cost is unknown" in words


def test_cost_is_not_compared_for_a_model_version() -> None:
    of_version = {**experiment(phase="Succeeded", recommendation=recommendation(*SPEC))}
    of_version["spec"] = {**of_version["spec"], "target": {"modelVersion": "v1", "framework": "sklearn"}}
    tuned = change.recommendation_of(of_version)
    words = change.describe_savings(tuned, rendering.tuned_target(tuned.spec.target, None, {}), VERSION)
    assert words.startswith("a replica costs 0.0225 an hour; ")


def test_the_manifest_of_a_model_version_has_tuned_fields_only() -> None:
    target = TuningTarget.model_validate({"modelVersion": "v1", "framework": "sklearn"})
    of_version = rendering.tuned_target(target, None, {})
    made = change.manifest("digits", "default", of_version, rendering.tuned(of_version, tuning().settings))
    (predictor,) = made["spec"]["predictors"]
    assert (made["kind"], made["spec"]["framework"]) == ("Inference", "sklearn")
    assert predictor == {
        "name": "stable",
        "modelVersion": "v1",
        "resources": {"cpu": "500m", "memory": "512Mi"},
        "batching": {"batchSize": 16},
        "template": {
            "containers": [{"name": "predictor", "env": [{"name": "OMP_NUM_THREADS", "value": "1"}]}]
        },
    }


def test_the_experiments_of_these_tests_are_valid() -> None:
    assert tuning().spec.max_num_trials == experiment_spec()["maxNumTrials"]

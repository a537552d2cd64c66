"""The samples of experiments follow the advice of docs/tuning.md: the current spec is in the space."""

from pathlib import Path

import pytest
import yaml

from serving.engines import shipped
from serving.objects import Object
from serving.resources.tuning.experiment import ProfilingExperimentSpec
from serving.resources.tuning.experiment_status import ProfilingExperimentStatus
from tests.objects.tuning.experiments import model_version
from tuner.planning import budget
from tuner.planning.snapshot import ExperimentSnapshot
from tuner.settings import DEFAULTS
from tuner.specs import rendering
from tuner.specs.space import Space

SAMPLES = Path(__file__).parents[4] / "manifests" / "samples"


def objects(kind: str) -> list[Object]:
    files = sorted(SAMPLES.glob("*.yaml"))
    bodies = [body for file in files for body in yaml.safe_load_all(file.read_text())]
    return [body for body in bodies if body["kind"] == kind]


def current_specs() -> list[tuple[Object, Object]]:
    """Return each sample experiment with each sample of the Inference that it tunes."""
    return [
        (experiment, inference)
        for experiment in objects("ProfilingExperiment")
        for inference in objects("Inference")
        if inference["metadata"]["name"] == experiment["spec"]["target"].get("inference")
    ]


def test_every_sample_experiment_tunes_a_sample_inference():
    tuned = [experiment["metadata"]["name"] for experiment, _ in current_specs()]
    assert set(tuned) == {experiment["metadata"]["name"] for experiment in objects("ProfilingExperiment")}
    assert len(tuned) >= 3, "inference.yaml, on-demand.yaml and autoscale.yaml"


@pytest.mark.parametrize(("experiment", "inference"), current_specs())
def test_space_of_a_sample_experiment_contains_the_current_spec(experiment: Object, inference: Object):
    spec = ProfilingExperimentSpec.model_validate(experiment["spec"])
    space = Space.of(spec)
    tuned_target = rendering.tuned_target(spec.target, inference, shipped())
    version = model_version(tuned_target.predictor.model_version)
    snapshot = ExperimentSnapshot(
        experiment,
        spec,
        ProfilingExperimentStatus(),
        space,
        (),
        lambda settings: rendering.pod(tuned_target, version, settings, spec.prices),
        DEFAULTS,
    )
    assert space.index(budget.todays_settings(snapshot)) in range(space.size)

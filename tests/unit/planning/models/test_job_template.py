"""Templates of Pods in jobs of all kinds, also of those that break the form of a Pod."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving import job_kinds
from serving.objects import Object
from serving.planning.models import capture, job_template
from serving.planning.models.capture import CreateCapture, ObservedCapture
from serving.planning.models.job_kind import TrainingJob
from serving.planning.models.version import FailVersion
from serving.settings import RuntimeImageSettings
from tests.objects.finished_jobs import CLAIM, EMPTY_DIR, training

ROWS = {f"{row.api_kind.kind}.{row.api_kind.group}": row for row in job_kinds.shipped()}
SPECS: dict[str, Any] = {
    "PyTorchJob.kubeflow.org": lambda pod: {
        "pytorchReplicaSpecs": {"Worker": {}, "Master": {"template": pod}}
    },
    "MPIJob.kubeflow.org": lambda pod: {"mpiReplicaSpecs": {"Launcher": {"template": pod}}},
    "TFJob.training.kubedl.io": lambda pod: {"tfReplicaSpecs": {"Worker": {"template": pod}}},
    "JobSet.jobset.x-k8s.io": lambda pod: {"replicatedJobs": [{}, {"template": {"spec": {"template": pod}}}]},
    "RayJob.ray.io": lambda pod: {"rayClusterSpec": {"headGroupSpec": {"template": pod}}},
    "Job.batch.volcano.sh": lambda pod: {"tasks": [{"name": "a"}, {"template": pod}]},
}
VERSION = {
    "metadata": {"name": "v1", "namespace": "default", "uid": "u1"},
    "spec": {"modelName": "digits", "source": {"job": {"name": "train", "uid": "j1"}}},
}
MODEL = {"spec": {"registry": {"repository": "registry.corp/models/digits"}}}


def job(kind: str, volume: Object) -> TrainingJob:
    """Return a job of this kind as the watch of the controllers has it."""
    pod = training(volume)["spec"]["template"]
    metadata = {"name": "train", "uid": "j1", "namespace": "default"}
    api_version, name = f"{ROWS[kind].api_kind.group}/v1", kind.partition(".")[0]
    whole = {"apiVersion": api_version, "kind": name, "metadata": metadata, "spec": SPECS[kind](pod)}
    return TrainingJob(ROWS[kind], ROWS[kind].trimmed(whole))


def step(training_job: TrainingJob) -> capture.CaptureStep:
    observed = ObservedCapture(training_job, [], None, [])
    return capture.next_step(VERSION, MODEL, observed, RuntimeImageSettings("registry.corp/slipway", "1"))


@pytest.mark.parametrize("kind", SPECS)
def test_output_on_a_claim_is_captured_when_an_operator_has_deleted_all_pods(kind: str) -> None:
    created = step(job(kind, CLAIM))
    assert isinstance(created, CreateCapture)
    claims = [v.get("persistentVolumeClaim") for v in created.job["spec"]["template"]["spec"]["volumes"]]
    assert CLAIM["persistentVolumeClaim"] in claims


@pytest.mark.parametrize("kind", SPECS)
def test_output_in_an_emptydir_is_gone_when_an_operator_has_deleted_all_pods(kind: str) -> None:
    failed = step(job(kind, EMPTY_DIR))
    assert isinstance(failed, FailVersion)
    assert failed.reason == "OutputGone"


def test_trimmed_job_has_its_templates_alone() -> None:
    whole = {"spec": {"a": [{"template": {"spec": 1, "metadata": 2}, "b": 3}], "c": 4}, "status": 5}
    assert job_template.trimmed(whole, ["spec.a.template"]) == {"spec": {"a": [{"template": {"spec": 1}}]}}
    assert job_template.trimmed(whole, []) == {}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)
VARIABLE = JSON | st.fixed_dictionaries(
    {"name": st.just("SLIPWAY_OUTPUT_DIR"), "value": JSON | st.just("/out")}
)
MOUNT = JSON | st.fixed_dictionaries({"name": st.just("output") | JSON, "mountPath": st.just("/out") | JSON})
CONTAINER = JSON | st.fixed_dictionaries(
    {},
    optional={
        "env": JSON | st.lists(VARIABLE),
        "volumeMounts": JSON | st.lists(MOUNT),
        "securityContext": JSON,
    },
)
VOLUME = JSON | st.fixed_dictionaries({"name": st.just("output")}, optional={"nfs": JSON, "hostPath": JSON})
POD = JSON | st.fixed_dictionaries(
    {
        "spec": JSON
        | st.fixed_dictionaries(
            {"containers": JSON | st.lists(CONTAINER)},
            optional={"volumes": JSON | st.lists(VOLUME), "securityContext": JSON, "tolerations": JSON},
        )
    }
)


@given(st.sampled_from(sorted(SPECS)), POD, JSON)
def test_no_shape_of_a_template_is_an_error(kind: str, pod: Any, other: Any) -> None:
    for spec in (SPECS[kind](pod), other):
        whole = {"apiVersion": "g/v1", "kind": "K", "metadata": {"name": "train", "uid": "j1"}, "spec": spec}
        training_job = TrainingJob(ROWS[kind], ROWS[kind].trimmed(whole))
        assert isinstance(step(training_job), CreateCapture | FailVersion | capture.WaitForSource)

"""The shipped kinds of training jobs: statuses as their projects write them, and the Pods with the output."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving import job_kinds
from serving.objects import Object
from serving.planning.models.job_kind import JobKind, TrainingJob

ROWS = {f"{row.api_kind.kind}.{row.api_kind.group}": row for row in job_kinds.shipped()}
OUTPUT = {"name": "SLIPWAY_OUTPUT_DIR", "value": "/out"}


def condition(type_: str, status: str = "True", **more: str) -> Object:
    return {"type": type_, "status": status, **more}


def conditions(*types: str) -> Object:
    return {"conditions": [condition(type_) for type_ in types]}


KUBEFLOW = [
    ({}, None),
    (conditions("Created"), None),
    (conditions("Created", "Running"), None),
    (conditions("Created", "Restarting"), None),
    (
        {"conditions": [condition("Created"), condition("Running", "False"), condition("Succeeded")]},
        "Succeeded",
    ),
    ({"conditions": [condition("Created"), condition("Running", "False"), condition("Failed")]}, "Failed"),
    ({"conditions": [condition("Succeeded", "False")], "completionTime": "2026-01-01T00:00:00Z"}, None),
    (conditions("Created", "Suspended"), None),
]
STATUSES: dict[str, list[tuple[Object, str | None]]] = {
    "Job.batch": [
        ({"active": 1}, None),
        (conditions("SuccessCriteriaMet"), None),
        (conditions("SuccessCriteriaMet", "Complete"), "Succeeded"),
        (conditions("FailureTarget"), None),
        (conditions("FailureTarget", "Failed"), "Failed"),
        (conditions("Suspended"), None),
    ],
    **{
        f"{kind}.kubeflow.org": KUBEFLOW
        for kind in ("PyTorchJob", "TFJob", "XGBoostJob", "PaddleJob", "JAXJob", "MPIJob")
    },
    **{
        f"{kind}.training.kubedl.io": [*KUBEFLOW, (conditions("Queuing"), None)]
        for kind in ("PyTorchJob", "TFJob", "MPIJob", "XGBoostJob", "XDLJob", "MarsJob", "ElasticDLJob")
    },
    "TrainJob.trainer.kubeflow.org": [
        ({}, None),
        (conditions("Suspended"), None),
        ({"conditions": [condition("Suspended", "False", reason="Resumed")]}, None),
        ({"conditions": [condition("Complete", reason="JobsCompleted")]}, "Succeeded"),
        ({"conditions": [condition("Failed", reason="TrainingRuntimeNotSupported")]}, "Failed"),
    ],
    "JobSet.jobset.x-k8s.io": [
        ({"restarts": 1, "replicatedJobsStatus": [{"name": "node", "succeeded": 1}]}, None),
        (conditions("StartupPolicyCompleted"), None),
        ({**conditions("Completed"), "terminalState": "Completed"}, "Succeeded"),
        ({**conditions("Failed"), "terminalState": "Failed"}, "Failed"),
    ],
    "RayJob.ray.io": [
        ({"jobDeploymentStatus": "Initializing"}, None),
        ({"jobStatus": "RUNNING", "jobDeploymentStatus": "Running"}, None),
        ({"jobStatus": "SUCCEEDED", "jobDeploymentStatus": "Running"}, None),
        ({"jobStatus": "SUCCEEDED", "jobDeploymentStatus": "Complete"}, "Succeeded"),
        ({"jobStatus": "STOPPED", "jobDeploymentStatus": "Complete"}, "Failed"),
        ({"jobStatus": "FAILED", "jobDeploymentStatus": "Complete"}, "Failed"),
        ({"jobStatus": "FAILED", "jobDeploymentStatus": "Failed", "reason": "AppFailed"}, "Failed"),
        ({"jobStatus": "FAILED", "jobDeploymentStatus": "Retrying"}, None),
        ({"jobStatus": "FAILED", "jobDeploymentStatus": "Running"}, None),
        ({"jobDeploymentStatus": "Failed", "reason": "DeadlineExceeded"}, "Failed"),
        ({"jobDeploymentStatus": "ValidationFailed"}, "Failed"),
        ({"jobDeploymentStatus": "Suspended"}, None),
        ({"jobDeploymentStatus": "Waiting"}, None),
    ],
    "Job.batch.volcano.sh": [
        ({"state": {"phase": "Pending"}}, None),
        ({"state": {"phase": "Running"}}, None),
        ({"state": {"phase": "Completing"}}, None),
        ({"state": {"phase": "Restarting"}}, None),
        ({"state": {"phase": "Completed"}, "conditions": [{"status": "Completed"}]}, "Succeeded"),
        ({"state": {"phase": "Failed"}, "conditions": [{"status": "Completed"}]}, "Failed"),
        ({"state": {"phase": "Terminated"}}, "Failed"),
        ({"state": {"phase": "Aborted"}}, None),
    ],
    "Workflow.argoproj.io": [
        ({"phase": "Pending"}, None),
        ({"phase": "Running", "conditions": [condition("PodRunning", "False")]}, None),
        ({"phase": "Succeeded", "conditions": [condition("Completed")]}, "Succeeded"),
        ({"phase": "Failed", "conditions": [condition("Completed")]}, "Failed"),
        ({"phase": "Error", "conditions": [condition("Completed")]}, "Failed"),
        ({"phase": "Running", "conditions": [condition("Completed")]}, None),
    ],
    "SparkApplication.sparkoperator.k8s.io": [
        ({"applicationState": {"state": "SUBMITTED"}}, None),
        ({"applicationState": {"state": "RUNNING"}}, None),
        ({"applicationState": {"state": "SUCCEEDING"}}, None),
        ({"applicationState": {"state": "COMPLETED"}}, "Succeeded"),
        ({"applicationState": {"state": "FAILING", "errorMessage": "m"}}, None),
        ({"applicationState": {"state": "SUBMISSION_FAILED"}}, None),
        ({"applicationState": {"state": "PENDING_RERUN"}}, None),
        ({"applicationState": {"state": "FAILED", "errorMessage": "m"}}, "Failed"),
    ],
}


@pytest.mark.parametrize(
    ("kind", "status", "outcome"),
    [(kind, status, outcome) for kind, rows in STATUSES.items() for status, outcome in rows],
)
def test_a_job_ends_when_its_project_says_so(kind: str, status: Object, outcome: str | None) -> None:
    assert ROWS[kind].outcome({"status": status}) == outcome
    job = {
        "apiVersion": "g/v1",
        "kind": "K",
        "metadata": {"name": "n"},
        "status": {**status, "nodes": {"a": {}}},
    }
    trimmed = ROWS[kind].trimmed(job)
    assert ROWS[kind].outcome(trimmed) == outcome
    assert "nodes" not in trimmed["status"]


def test_every_shipped_kind_has_statuses_here() -> None:
    assert set(ROWS) == set(STATUSES)
    assert all(
        {outcome for _, outcome in rows} == {None, "Succeeded", "Failed"} for rows in STATUSES.values()
    )


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=5,
)
FIELDS = st.sampled_from(
    ["conditions", "phase", "state", "jobStatus", "jobDeploymentStatus", "applicationState"]
)


@given(st.sampled_from(sorted(ROWS)), JSON | st.dictionaries(FIELDS, JSON, max_size=3))
def test_a_job_has_not_ended_when_its_status_has_another_shape(kind: str, status: Object) -> None:
    job = {"apiVersion": "g/v1", "kind": "K", "metadata": {"name": "n"}, "status": status}
    assert ROWS[kind].outcome(ROWS[kind].trimmed(job)) is None


def pod(name: str, *, phase: str = "Succeeded", created: str = "2026-01-02T00:00:00Z", **more: Any) -> Object:
    env = [OUTPUT] if more.pop("has_output", True) else []
    owner = [{"uid": more.pop("owner", "u1"), "kind": "PyTorchJob", "controller": True}]
    meta = {"name": name, "creationTimestamp": created, "labels": more, "ownerReferences": owner}
    return {
        "metadata": meta,
        "spec": {"containers": [{"name": "c", "env": env}]},
        "status": {"phase": phase},
    }


def job(kind: str, **status: Any) -> TrainingJob:
    meta = {"name": "train", "uid": "u1", "creationTimestamp": "2026-01-01T00:00:00Z"}
    return TrainingJob(ROWS[kind], {"metadata": meta, "status": status})


def found(of: TrainingJob, *pods: Object) -> list[str]:
    return [one["metadata"]["name"] for one in of.kind.with_output(of.object, pods)]


@pytest.mark.parametrize(
    ("kind", "selector"),
    [
        ("Job.batch", "batch.kubernetes.io/job-name=train"),
        ("PyTorchJob.kubeflow.org", "training.kubeflow.org/job-name=train"),
        ("MPIJob.kubeflow.org", "training.kubeflow.org/job-name=train"),
        ("TrainJob.trainer.kubeflow.org", "jobset.sigs.k8s.io/jobset-name=train"),
        ("TFJob.training.kubedl.io", "job-name=train"),
        ("JobSet.jobset.x-k8s.io", "jobset.sigs.k8s.io/jobset-name=train"),
        ("Job.batch.volcano.sh", "volcano.sh/job-name=train"),
        ("Workflow.argoproj.io", "workflows.argoproj.io/workflow=train"),
        ("SparkApplication.sparkoperator.k8s.io", "spark-role=driver,sparkoperator.k8s.io/app-name=train"),
        ("RayJob.ray.io", ""),
    ],
)
def test_the_pods_of_a_job_have_the_labels_of_its_project(kind: str, selector: str) -> None:
    of = job(kind)
    assert of.kind.pod_selector(of.object) == selector


def test_the_pods_of_a_ray_job_are_those_of_its_cluster_once_it_has_one() -> None:
    of = job("RayJob.ray.io", rayClusterName="train-x7k2p")
    assert of.kind.pod_selector(
        of.kind.trimmed(of.object | {"apiVersion": "ray.io/v1", "kind": "RayJob"})
    ) == ("ray.io/cluster=train-x7k2p")
    head = pod("head", phase="Running", **{"ray.io/node-type": "head"})
    worker = pod("worker", phase="Running", created="2026-01-03T00:00:00Z", **{"ray.io/node-type": "worker"})
    assert found(of, worker, head) == ["head", "worker"]


def test_the_master_has_the_output_before_workers_and_newer_pods() -> None:
    role, type_, index = (
        f"training.kubeflow.org/{name}" for name in ("job-role", "replica-type", "replica-index")
    )
    pods = [
        pod("worker-1", **{type_: "worker", index: "1"}),
        pod("worker-0", **{type_: "worker", index: "0"}),
        pod("master-0", created="2026-01-01T12:00:00Z", **{type_: "master", index: "0", role: "master"}),
    ]
    assert found(job("PyTorchJob.kubeflow.org"), *pods) == ["master-0", "worker-0", "worker-1"]


def test_a_pod_that_names_its_output_is_taken_before_one_of_a_preferred_role() -> None:
    launcher = pod("launcher", has_output=False, **{"training.kubeflow.org/job-role": "launcher"})
    assert found(job("MPIJob.kubeflow.org"), launcher, pod("worker")) == ["worker", "launcher"]


def test_the_newest_attempt_of_a_job_has_the_output() -> None:
    first, second = pod("b", created="2026-01-02T00:00:00Z"), pod("a", created="2026-01-02T00:00:01Z")
    assert found(job("Job.batch"), first, second) == ["a", "b"]
    assert found(job("Job.batch"), pod("failed", phase="Failed"), pod("runs", phase="Running")) == []


@pytest.mark.parametrize(
    ("kind", "expected"), [("Job.batch", ["own"]), ("JobSet.jobset.x-k8s.io", ["own", "by-a-part"])]
)
def test_pods_of_an_earlier_job_with_the_same_name_are_left_out(kind: str, expected: list[str]) -> None:
    pods = [
        pod("own", created="2026-01-03T00:00:00Z"),
        pod("by-a-part", owner="u2", created="2026-01-02T00:00:00Z"),
        pod("earlier", owner="u0", created="2025-12-31T00:00:00Z"),
    ]
    assert found(job(kind), *pods) == expected


def test_only_what_rules_read_is_kept_of_a_job() -> None:
    row: JobKind = ROWS["Workflow.argoproj.io"]
    meta = {
        "name": "train",
        "uid": "u1",
        "resourceVersion": "7",
        "finalizers": ["f"],
        "managedFields": [{}],
        "annotations": {"slipway.dev/model": "m", "kubectl.kubernetes.io/last-applied-configuration": "{}"},
    }
    kept = row.trimmed(
        {
            "apiVersion": "argoproj.io/v1alpha1",
            "kind": "Workflow",
            "metadata": meta,
            "spec": {"templates": []},
            "status": {"phase": "Running", "nodes": {"a": {}}},
        }
    )
    assert kept["metadata"] == {
        "name": "train",
        "uid": "u1",
        "resourceVersion": "7",
        "finalizers": ["f"],
        "annotations": {"slipway.dev/model": "m"},
    }
    assert kept["status"] == {"phase": "Running"}
    assert "spec" not in kept

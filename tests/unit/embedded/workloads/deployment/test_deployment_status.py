"""The status of a Deployment during rollouts."""

import datetime as dt
from dataclasses import replace

import pytest

from serving.embedded.workloads.deployment import status as deployment_status
from serving.embedded.workloads.deployment.plan import DeploymentSpec
from serving.embedded.workloads.deployment.status import COMPLETE
from serving.embedded.workloads.pods import PodFacts
from serving.resources.kubernetes import conditions

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
WANT = DeploymentSpec("web", "u", 1, "new", progress_deadline_seconds=60)


def pod(hash_: str, *, ready: bool) -> PodFacts:
    return PodFacts(
        hash_,
        hash_,
        NOW,
        template_hash=hash_,
        phase="Running",
        ready=ready,
        ready_since=NOW if ready else None,
    )


def report(status: dict, *pods: PodFacts, after: int = 0, spec: DeploymentSpec = WANT, failure: str = ""):
    deployment = {"metadata": {"generation": 3}, "status": status}
    moment = NOW + dt.timedelta(seconds=after)
    return deployment_status.report(deployment, spec, pods, moment, failure=failure)


def reason(result: deployment_status.StatusReport, type_: str = "Progressing") -> str:
    condition = conditions.find(result.status["conditions"], type_)
    return condition["reason"] if condition else ""


def test_rollout_goes_from_started_to_available() -> None:
    first = report({}, pod("new", ready=False))
    assert reason(first) == "NewReplicaSetCreated"
    assert reason(first, "Available") == "MinimumReplicasUnavailable"
    assert first.requeue_after == dt.timedelta(seconds=60)
    last = report(first.status, pod("new", ready=True), after=5)
    assert reason(last) == "NewReplicaSetAvailable"
    assert last.status["observedGeneration"] == 3
    assert [last.status[k] for k in ("replicas", "updatedReplicas", "availableReplicas")] == [1, 1, 1]


def test_condition_is_exceeded_when_the_deadline_passes_without_progress() -> None:
    first = report({}, pod("old", ready=True), pod("new", ready=False))
    late = report(first.status, pod("old", ready=True), pod("new", ready=False), after=60)
    assert late.exceeded
    assert conditions.find(late.status["conditions"], "Progressing")["status"] == "False"
    assert (
        report(late.status, pod("old", ready=True), pod("new", ready=False), after=90).status == late.status
    )
    assert reason(report(late.status, pod("new", ready=True), after=99)) == "NewReplicaSetAvailable"


def test_pod_that_dies_after_the_rollout_does_not_restart_it() -> None:
    done = report({}, pod("new", ready=True))
    died = report(done.status, pod("new", ready=False), after=1000)
    assert reason(died) == "NewReplicaSetAvailable"
    assert reason(died, "Available") == "MinimumReplicasUnavailable"


def test_rollout_is_complete_when_one_of_two_pods_that_became_unready_is_ready_again() -> None:
    three = replace(WANT, replicas=3)
    ready, unready = pod("new", ready=True), pod("new", ready=False)
    done = report({}, ready, ready, ready, spec=three)
    died = report(done.status, ready, unready, unready, after=1000, spec=three)
    assert reason(report(died.status, ready, ready, unready, after=1010, spec=three)) == COMPLETE


@pytest.mark.parametrize("replicas", [0, 1])
def test_rollout_has_no_deadline_when_a_complete_deployment_is_scaled_up(replicas: int) -> None:
    ready = [pod("new", ready=True)] * replicas
    done = report({}, *ready, spec=replace(WANT, replicas=replicas))
    more = replace(WANT, replicas=replicas + 1)
    scaled = report(done.status, *ready, pod("new", ready=False), after=1000, spec=more)
    assert (reason(scaled), scaled.requeue_after) == (COMPLETE, None)


def test_deadline_restarts_with_the_next_template() -> None:
    done = report({}, pod("new", ready=True))
    after = report(done.status, pod("new", ready=True), after=1000, spec=replace(WANT, template_hash="newer"))
    assert reason(after) == "NewReplicaSetCreated"
    assert after.requeue_after == dt.timedelta(seconds=60)


def test_paused_rollout_has_no_deadline_and_resumes_with_a_fresh_one() -> None:
    first = report({}, pod("new", ready=False))
    paused = report(first.status, pod("new", ready=False), after=30, spec=replace(WANT, paused=True))
    assert (reason(paused), paused.requeue_after) == ("DeploymentPaused", None)
    resumed = report(paused.status, pod("new", ready=False), after=900)
    assert (reason(resumed), resumed.requeue_after) == ("DeploymentResumed", dt.timedelta(seconds=60))


def test_status_is_the_same_when_no_pod_changes() -> None:
    done = report({}, pod("new", ready=True))
    assert report(done.status, pod("new", ready=True), after=500).status == done.status


def test_replica_failure_is_a_condition_while_pods_are_refused() -> None:
    result = report({}, failure="no such user")
    assert conditions.find(result.status["conditions"], "ReplicaFailure")["message"] == "no such user"
    assert conditions.find(report(result.status).status["conditions"], "ReplicaFailure") is None

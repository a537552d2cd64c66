"""Starts of replicas, as their Pods show them."""

import pytest

from autoscaler.policy.startup import StartupTimes
from autoscaler.starts import Starts
from serving import clock
from serving.objects import Object

CREATED = "2026-03-04T12:00:00Z"
BEGIN = clock.parse(CREATED).timestamp()


def pod(uid: str = "u", *, ready: bool = False, restarts: int = 0, phase: str = "Running") -> Object:
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    containers = [{"name": "c", "restartCount": restarts}]
    return {
        "metadata": {"uid": uid, "name": uid, "creationTimestamp": CREATED},
        "status": {"phase": phase, "conditions": conditions, "containerStatuses": containers},
    }


def test_a_start_lasts_from_a_pods_creation_until_it_is_ready() -> None:
    starts = Starts()
    starts.observe(None, pod(), BEGIN + 1)
    starts.observe(pod(), pod(ready=True), BEGIN + 40)
    starts.observe(pod(ready=True), pod(), BEGIN + 50)
    starts.observe(pod(), pod(ready=True), BEGIN + 60)
    assert starts.has_news
    replicas = starts.take(2, 1, [pod(ready=True), pod("v")])
    assert (replicas.started, replicas.starting, replicas.failed) == ((40.0,), (BEGIN,), ())
    assert starts.take(2, 1, []).started == ()


def test_replica_from_before_the_start_teaches_no_startup_time() -> None:
    starts = Starts()
    starts.observe(None, pod(ready=True, restarts=3), BEGIN + 4000)
    starts.observe(None, pod("v", restarts=3), BEGIN + 4000)
    assert starts.take(2, 1, []).started == ()
    assert not starts.has_news


def test_each_failed_run_counts_once_until_the_replica_is_ready() -> None:
    starts = Starts()
    starts.observe(None, pod(), BEGIN)
    starts.observe(pod(), pod(restarts=1), BEGIN + 10)
    starts.observe(pod(restarts=1), pod(restarts=1), BEGIN + 11)
    assert starts.take(1, 0, [pod(restarts=1)]).failed == (10.0,)
    starts.observe(pod(restarts=1), pod(restarts=1, ready=True), BEGIN + 20)
    starts.observe(pod(restarts=1, ready=True), pod(restarts=2), BEGIN + 100)
    assert starts.take(1, 0, []).failed == ()


def test_restart_of_a_pod_is_no_failed_start_when_its_earlier_readiness_was_not_seen() -> None:
    starts = Starts()
    starts.observe(pod(ready=True), pod(restarts=1), BEGIN + 259_100)
    starts.observe(pod(restarts=1), pod(restarts=1, ready=True), BEGIN + 259_200)
    replicas = starts.take(1, 1, [])
    assert (replicas.started, replicas.failed) == ((), ())


@pytest.mark.parametrize("is_listed", [True, False])
def test_pod_gives_no_start_when_its_status_shows_that_it_was_ready_before(*, is_listed: bool) -> None:
    starts, blip = Starts(), pod()
    blip["status"]["startTime"] = CREATED
    blip["status"]["conditions"][0]["lastTransitionTime"] = "2026-03-07T12:00:00Z"
    if is_listed:
        starts.observe(None, blip, BEGIN + 259_201)
    starts.observe(blip, pod(ready=True), BEGIN + 259_205)
    assert not starts.has_news


def test_pod_that_first_starts_gives_its_start_when_its_status_has_times() -> None:
    starts, starting = Starts(), pod()
    starting["status"]["startTime"] = "2026-03-04T12:00:03Z"
    starting["status"]["conditions"][0]["lastTransitionTime"] = "2026-03-04T12:00:04Z"
    starts.observe(starting, pod(ready=True), BEGIN + 40)
    assert starts.take(1, 1, []).started == (40.0,)


def test_earlier_restarts_are_no_failed_starts_when_the_pod_was_not_seen_before() -> None:
    starts = Starts()
    starts.observe(pod(restarts=5), pod(restarts=5), BEGIN + 4000)
    assert not starts.has_news
    starts.observe(pod(restarts=5), pod(restarts=6), BEGIN + 4010)
    starts.observe(pod(restarts=6), pod(restarts=7), BEGIN + 4040)
    starts.observe(pod(restarts=7), pod(restarts=7, ready=True), BEGIN + 4060)
    replicas = starts.take(1, 1, [])
    assert (replicas.started, replicas.failed) == ((20.0,), (30.0,))


def test_seconds_of_a_failed_start_are_learned_once_when_the_same_pod_becomes_ready() -> None:
    starts, times = Starts(), StartupTimes()
    starts.observe(None, pod(), BEGIN)
    starts.observe(pod(), pod(restarts=1), BEGIN + 10)
    starts.observe(pod(restarts=1), pod(restarts=1, ready=True), BEGIN + 20)
    replicas = starts.take(1, 1, [])
    times.learn(replicas.started, replicas.failed)
    assert times.known == 20


def test_restart_of_an_init_container_is_a_failed_start() -> None:
    starts, crashed = Starts(), pod(phase="Pending")
    crashed["status"]["initContainerStatuses"] = [{"name": "copy-model", "restartCount": 1}]
    starts.observe(None, pod(phase="Pending"), BEGIN)
    starts.observe(pod(phase="Pending"), crashed, BEGIN + 15)
    assert starts.take(1, 0, [crashed]).failed == (15.0,)


def test_failed_or_terminating_pod_is_not_starting() -> None:
    going = pod("g")
    going["metadata"]["deletionTimestamp"] = CREATED
    assert Starts().take(1, 0, [pod(phase="Failed"), going]).starting == ()


def test_a_pod_that_fails_is_no_failed_start_when_it_is_being_deleted() -> None:
    starts, going, gone = Starts(), pod(), pod(phase="Failed", restarts=1)
    for obj in (going, gone):
        obj["metadata"]["deletionTimestamp"] = CREATED
    starts.observe(None, pod(), BEGIN)
    starts.observe(pod(), going, BEGIN + 60)
    starts.observe(going, gone, BEGIN + 61)
    starts.observe(gone, None, BEGIN + 62)
    assert starts.take(0, 0, []).failed == ()

"""Starts of replicas, as their Pods show them."""

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
    starts.seen(None, pod(), BEGIN + 1)
    starts.seen(pod(), pod(ready=True), BEGIN + 40)
    starts.seen(pod(ready=True), pod(), BEGIN + 50)
    starts.seen(pod(), pod(ready=True), BEGIN + 60)
    assert starts.has_news
    replicas = starts.take(2, 1, [pod(ready=True), pod("v")])
    assert (replicas.started, replicas.starting, replicas.failed) == ((40.0,), (BEGIN,), ())
    assert starts.take(2, 1, []).started == ()


def test_replica_from_before_the_start_teaches_no_startup_time() -> None:
    starts = Starts()
    starts.seen(None, pod(ready=True, restarts=3), BEGIN + 4000)
    starts.seen(None, pod("v", restarts=3), BEGIN + 4000)
    assert starts.take(2, 1, []).started == ()
    assert not starts.has_news


def test_each_failed_run_counts_once_until_the_replica_is_ready() -> None:
    starts = Starts()
    starts.seen(None, pod(), BEGIN)
    starts.seen(pod(), pod(restarts=1), BEGIN + 10)
    starts.seen(pod(restarts=1), pod(restarts=1), BEGIN + 11)
    assert starts.take(1, 0, [pod(restarts=1)]).failed == (10.0,)
    starts.seen(pod(restarts=1), pod(restarts=1, ready=True), BEGIN + 20)
    starts.seen(pod(restarts=1, ready=True), pod(restarts=2), BEGIN + 100)
    assert starts.take(1, 0, []).failed == ()


def test_failed_or_terminating_pod_is_not_starting() -> None:
    going = pod("g")
    going["metadata"]["deletionTimestamp"] = CREATED
    assert Starts().take(1, 0, [pod(phase="Failed"), going]).starting == ()

"""The next steps of a Job."""

import datetime as dt
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.embedded.workloads.job import index_ranges
from serving.embedded.workloads.job import plan as job_plan
from serving.embedded.workloads.job import status as job_status
from serving.embedded.workloads.job.plan import Backoff, JobProgress, JobSpec
from serving.embedded.workloads.pods import BURST_REPLICAS, PodFacts

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
BACKOFF = Backoff(1.0, 300.0)
WANT = JobSpec("train", "u", 1, 1, 6, None, None, suspend=False, in_place=False, unsupported="")
RUNNING = JobProgress(started_at=NOW - dt.timedelta(seconds=5))


def pod(attempt: int, phase: str = "Running", *, ago: int = 100, **more) -> PodFacts:
    ended = NOW - dt.timedelta(seconds=ago) if phase in ("Succeeded", "Failed") else None
    name = f"p{attempt}"
    return PodFacts(name, name, NOW, phase=phase, finished_at=ended, attempt=attempt, **more)


def plan(spec: JobSpec, progress: JobProgress, *pods: PodFacts) -> job_plan.JobPlan:
    return job_plan.next_step(spec, progress, pods, NOW, BACKOFF)


def test_attempts_start_up_to_parallelism_and_remaining_completions() -> None:
    spec = replace(WANT, parallelism=3, completions=5)
    assert plan(spec, JobProgress()).start == (0, 1, 2)
    assert plan(spec, RUNNING, *(pod(n, "Succeeded") for n in range(4))).start == (4,)


def test_attempt_is_skipped_when_its_name_is_that_of_a_foreign_pod() -> None:
    spec = replace(WANT, parallelism=2, completions=None)
    taken = {job_plan.attempt_name(spec, 0), job_plan.attempt_name(spec, 2)}
    assert job_plan.next_step(spec, RUNNING, [], NOW, BACKOFF, taken=taken).start == (1, 3)


def test_newest_pods_that_are_not_ready_are_deleted_first_when_parallelism_is_reduced() -> None:
    def aged(attempt: int, minutes: int, *, ready: bool) -> PodFacts:
        return replace(pod(attempt, ready=ready), created=NOW - dt.timedelta(minutes=minutes))

    pods = [
        aged(0, 50, ready=True),
        aged(1, 1, ready=True),
        aged(2, 50, ready=False),
        aged(3, 1, ready=False),
    ]
    for parallelism, deleted in ((3, ["p3"]), (2, ["p3", "p2"]), (1, ["p3", "p2", "p1"])):
        spec = replace(WANT, parallelism=parallelism, completions=8)
        assert [p.name for p in plan(spec, RUNNING, *pods).delete] == deleted


def test_starts_are_limited_and_planned_again_at_once_when_parallelism_is_mistyped() -> None:
    spec = replace(WANT, parallelism=1_000_000_000, completions=None)
    planned = plan(spec, RUNNING)
    assert (planned.start, planned.requeue_after) == (tuple(range(BURST_REPLICAS)), dt.timedelta(0))
    again = plan(spec, RUNNING, *(pod(n) for n in planned.start))
    assert again.start == tuple(range(BURST_REPLICAS, 2 * BURST_REPLICAS))
    assert plan(replace(spec, parallelism=BURST_REPLICAS), RUNNING).requeue_after is None


def test_job_completes_once_and_stays_complete_when_pods_are_deleted() -> None:
    done = plan(WANT, RUNNING, pod(0, "Succeeded"))
    assert done.progress.ending is not None
    assert done.progress.ending.type == "Complete"
    assert [event.reason for event in done.events] == ["Completed"]
    assert plan(WANT, done.progress) == job_plan.JobPlan(done.progress)


def test_counts_survive_the_pods() -> None:
    spec = replace(WANT, parallelism=2, completions=3)
    known = plan(spec, RUNNING, pod(0, "Succeeded"), pod(1)).progress
    later = plan(spec, known, pod(1, "Succeeded"))
    assert later.progress.succeeded == {0, 1}
    assert later.start == (2,)


def test_back_off_doubles_after_each_failure() -> None:
    first = plan(WANT, RUNNING, pod(0, "Failed", ago=0))
    assert (first.start, first.requeue_after) == ((), dt.timedelta(seconds=1))
    third = plan(WANT, RUNNING, *(pod(n, "Failed", ago=2 - n) for n in range(3)))
    assert third.requeue_after == dt.timedelta(seconds=4)
    assert plan(WANT, RUNNING, pod(0, "Failed", ago=1)).start == (1,)


def test_failure_in_the_future_delays_no_attempt_when_the_clock_was_set_back() -> None:
    before = pod(0, "Failed", ago=-3600)
    assert plan(WANT, RUNNING, before).start == (1,)
    after = plan(WANT, RUNNING, before, pod(1, "Failed", ago=0))
    assert (after.start, after.requeue_after) == ((), dt.timedelta(seconds=2))


def test_job_fails_when_failures_exceed_the_limit() -> None:
    spec = replace(WANT, backoff_limit=1)
    planned = plan(spec, RUNNING, pod(0, "Failed"), pod(1, "Failed"), pod(2))
    assert planned.progress.ending is not None
    assert planned.progress.ending.reason == "BackoffLimitExceeded"
    assert [p.name for p in planned.delete] == ["p2"]
    assert planned.progress.failed == {0, 1, 2}


@pytest.mark.parametrize(
    ("limit", "restarts", "ends"), [(0, 0, False), (0, 1, True), (2, 1, False), (2, 2, True)]
)
def test_restarts_in_place_count_as_failures(limit: int, restarts: int, *, ends: bool) -> None:
    spec = replace(WANT, in_place=True, backoff_limit=limit)
    planned = plan(spec, RUNNING, replace(pod(0), restarts=restarts))
    assert (planned.progress.ending is not None) == ends


def test_job_fails_when_it_exceeds_its_deadline() -> None:
    spec = replace(WANT, active_deadline=dt.timedelta(seconds=6))
    assert plan(spec, RUNNING, pod(0)).requeue_after == dt.timedelta(seconds=1)
    late = plan(replace(spec, active_deadline=dt.timedelta(seconds=5)), RUNNING, pod(0))
    assert late.progress.ending is not None
    assert late.progress.ending.reason == "DeadlineExceeded"


def test_job_starts_and_runs_when_its_deadline_is_far_beyond_the_calendar() -> None:
    template = {"spec": {"containers": []}}
    far = {"template": template, "activeDeadlineSeconds": 2**63 - 1, "ttlSecondsAfterFinished": 2**31 - 1}
    spec = job_plan.read_spec({"metadata": {"name": "a", "uid": "u"}, "spec": far})
    assert plan(spec, JobProgress()).start == (0,)
    assert plan(spec, RUNNING, pod(0)).progress.ending is None
    ending = job_plan.JobEnd("Complete", "r", "m")
    assert not plan(spec, replace(RUNNING, ending=ending, ended_at=NOW)).remove_job


def test_job_is_removed_after_its_time_to_live() -> None:
    spec = replace(WANT, ttl=dt.timedelta(seconds=10))
    ending = job_plan.JobEnd("Complete", "r", "m")
    ended = replace(RUNNING, ending=ending, ended_at=NOW - dt.timedelta(seconds=4))
    assert plan(spec, ended).requeue_after == dt.timedelta(seconds=6)
    assert plan(spec, replace(ended, ended_at=NOW - dt.timedelta(seconds=10))).remove_job


def test_suspended_job_ends_its_pods_and_starts_again_when_resumed() -> None:
    held = plan(replace(WANT, suspend=True), RUNNING, pod(0))
    assert (held.progress.started_at, [p.name for p in held.delete], held.start) == (None, ["p0"], ())
    killed = pod(0, "Failed", terminating=True)
    assert plan(replace(WANT, suspend=True), held.progress, killed).progress.failed == frozenset()
    assert plan(WANT, held.progress).start == (0,)


def test_work_queue_is_complete_when_a_pod_succeeded_and_none_runs() -> None:
    spec = replace(WANT, parallelism=2, completions=None)
    going = plan(spec, RUNNING, pod(0, "Succeeded"), pod(1))
    assert (going.progress.ending, going.start) == (None, ())
    assert plan(spec, going.progress, pod(1, "Succeeded")).progress.ending is not None


def test_unsupported_field_fails_the_job() -> None:
    template = {"spec": {"containers": []}}
    spec = {"template": template, "completionMode": "Indexed", "successPolicy": {}}
    spec = job_plan.read_spec({"metadata": {"name": "a", "uid": "u"}, "spec": spec})
    planned = plan(spec, JobProgress())
    assert planned.progress.ending is not None
    assert "successPolicy, completionMode: Indexed" in planned.progress.ending.message
    assert not planned.start


def test_status_read_back_is_the_progress_that_was_written() -> None:
    ended = replace(
        RUNNING,
        succeeded=frozenset({0, 2}),
        failed=frozenset({1}),
        ending=job_plan.JobEnd("Complete", "CompletionsReached", "m"),
        ended_at=NOW,
    )
    status = job_status.report({}, WANT, ended, [], NOW)
    assert job_plan.progress({"status": status}) == ended
    assert (status["succeeded"], status["failed"]) == (2, 1)
    again = job_status.report({"status": status}, WANT, ended, [], NOW + dt.timedelta(hours=1))
    assert again == status


@given(st.frozensets(st.integers(0, 50)))
def test_intervals_are_read_back_as_written(numbers: frozenset[int]) -> None:
    assert index_ranges.parse(index_ranges.render(numbers)) == numbers


def test_intervals_are_short() -> None:
    assert index_ranges.render([5, 0, 1, 2, 3]) == "0-3,5"


def test_intervals_are_refused_when_they_have_too_many_numbers() -> None:
    for text in ("0-9999999999", f"0-{index_ranges.MOST - 1},{index_ranges.MOST}"):
        with pytest.raises(ValueError, match="too many numbers"):
            index_ranges.parse(text)

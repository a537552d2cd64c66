from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.embedded.kubelet.pod import lifecycle
from serving.embedded.kubelet.pod.lifecycle import Blocked, Container, ContainerExit, ContainerRun
from serving.settings import NodeSettings

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SETTINGS = NodeSettings()


def ended(code: int, *, ago: float = 0, streak: int = 0, lasted: float = 1) -> ContainerRun:
    at = NOW - timedelta(seconds=ago)
    return ContainerRun(
        streak, streak, at - timedelta(seconds=lasted), ContainerExit(code, "Error", finished_at=at)
    )


def box(run: ContainerRun | None = None, **more) -> Container:
    return Container(more.pop("name", "main"), "image", run, **more)


RUNNING = ContainerRun(0, 0, NOW)


def test_container_that_never_ran_is_started_at_once():
    assert lifecycle.start_plan("Always", [], [box()], NOW, SETTINGS).start == ("main",)


def test_restart_policy_decides_which_containers_restart():
    for policy, code, again in [
        ("Always", 0, True),
        ("Always", 1, True),
        ("OnFailure", 0, False),
        ("OnFailure", 1, True),
        ("Never", 0, False),
        ("Never", 1, False),
    ]:
        plan = lifecycle.start_plan(policy, [], [box(ended(code, ago=1000))], NOW, SETTINGS)
        assert bool(plan.start) is again, (policy, code)


def test_crashed_container_waits_for_its_back_off():
    plan = lifecycle.start_plan("Always", [], [box(ended(1, ago=1, streak=2))], NOW, SETTINGS)
    assert plan.start == ()
    assert plan.backing_off == ("main",)
    assert plan.wake_at == NOW + timedelta(seconds=1)


def test_first_crash_is_followed_by_a_restart_at_once():
    assert lifecycle.start_plan("Always", [], [box(ended(1))], NOW, SETTINGS).start == ("main",)
    assert lifecycle.start_plan("Always", [], [box(ended(1, streak=1))], NOW, SETTINGS).start == ()


def test_container_restarts_when_the_clock_was_set_back_after_its_end():
    crashed = box(ended(1, ago=-3600, streak=5))
    assert lifecycle.start_plan("Always", [], [crashed], NOW, SETTINGS).start == ("main",)


def test_blocked_container_is_tried_again_when_the_clock_was_set_back():
    blocked = box(blocked=Blocked("Missing", "", lifecycle.retry_at(1, NOW, SETTINGS), 1))
    assert lifecycle.start_plan("Always", [], [blocked], NOW, SETTINGS).start == ()
    earlier = NOW - timedelta(hours=1)
    assert lifecycle.start_plan("Always", [], [blocked], earlier, SETTINGS).start == ("main",)


def test_back_off_is_reset_after_a_long_run():
    long = ended(1, streak=9, lasted=SETTINGS.backoff_reset_seconds)
    assert lifecycle.next_run(long, SETTINGS).streak == 1
    assert lifecycle.next_run(ended(1, streak=9, lasted=5), SETTINGS).streak == 10


@pytest.mark.parametrize("code", [0, 143])
def test_run_after_a_shutdown_of_the_node_starts_at_once_and_counts_as_no_restart(code: int):
    exit_ = lifecycle.recorded_exit(code, 0, oom=False, error="", finished_at=NOW, shutdown=True)
    run = ContainerRun(4, 2, NOW, exit_, restart_count=3)
    plan = lifecycle.start_plan("Always", [], [box(run)], NOW, SETTINGS)
    assert (plan.start, plan.backing_off) == (("main",), ())
    assert lifecycle.next_run(run, SETTINGS) == ContainerRun(5, 2, restart_count=3)
    crashed = replace(run, exit=ContainerExit(1, "Error", finished_at=NOW))
    assert lifecycle.next_run(crashed, SETTINGS) == ContainerRun(5, 3, restart_count=4)


def test_container_with_exit_code_0_has_not_succeeded_when_a_shutdown_of_the_node_ended_it():
    exit_ = lifecycle.recorded_exit(0, 0, oom=False, error="", finished_at=NOW, shutdown=True)
    ended_by_node = box(ContainerRun(0, 0, NOW, exit_))
    assert lifecycle.phase("Never", [], [ended_by_node]) == "Failed"
    assert lifecycle.phase("OnFailure", [], [ended_by_node]) == "Running"
    assert lifecycle.start_plan("OnFailure", [], [ended_by_node], NOW, SETTINGS).start == ("main",)


def test_init_container_with_exit_code_0_is_repeated_when_a_shutdown_of_the_node_ended_it():
    exit_ = lifecycle.recorded_exit(0, 0, oom=False, error="", finished_at=NOW, shutdown=True)
    ended_by_node = box(ContainerRun(0, 0, NOW, exit_), name="one")
    assert not lifecycle.init_done([ended_by_node])
    assert lifecycle.start_plan("Always", [ended_by_node], [box()], NOW, SETTINGS).start == ("one",)
    assert lifecycle.phase("Never", [ended_by_node], [box()]) == "Failed"


def test_oom_kill_and_start_error_keep_their_reasons_during_a_shutdown():
    assert (
        lifecycle.recorded_exit(137, 9, oom=True, error="", finished_at=NOW, shutdown=True).reason
        == "OOMKilled"
    )
    failed = lifecycle.recorded_exit(128, 0, oom=False, error="x", finished_at=NOW, shutdown=True)
    assert failed.reason == "StartError"


@given(st.integers(0, 10_000))
def test_back_off_never_shrinks_and_never_exceeds_its_cap(streak: int):
    def delay(n: int) -> float:
        at = lifecycle.restart_at(ended(1, streak=n), SETTINGS)
        assert at is not None
        return (at - NOW).total_seconds()

    assert delay(streak) <= delay(streak + 1) <= SETTINGS.backoff_cap_seconds
    assert (delay(streak) == 0) == (streak == 0)
    assert delay(1) == SETTINGS.backoff_base_seconds


def test_init_containers_run_in_sequence_and_before_the_others():
    first, second = box(name="one"), box(name="two")
    assert lifecycle.start_plan("Always", [first, second], [box()], NOW, SETTINGS).start == ("one",)
    first = box(RUNNING, name="one")
    assert lifecycle.start_plan("Always", [first, second], [box()], NOW, SETTINGS).start == ()
    first = box(ended(0), name="one")
    assert lifecycle.start_plan("Always", [first, second], [box()], NOW, SETTINGS).start == ("two",)
    second = box(ended(0), name="two")
    assert lifecycle.start_plan("Always", [first, second], [box()], NOW, SETTINGS).start == ("main",)


def test_failed_init_container_fails_the_pod_only_without_restarts():
    failed = box(ended(1, ago=100), name="one")
    assert lifecycle.phase("Never", [failed], [box()]) == "Failed"
    assert lifecycle.phase("OnFailure", [failed], [box()]) == "Pending"
    assert lifecycle.start_plan("Always", [failed], [box()], NOW, SETTINGS).start == ("one",)


def test_phase_follows_from_the_exits_of_containers():
    assert lifecycle.phase("Always", [], [box()]) == "Pending"
    assert lifecycle.phase("Always", [], [box(ended(0))]) == "Running"
    assert lifecycle.phase("Never", [], [box(ended(0)), box(RUNNING)]) == "Running"
    assert lifecycle.phase("Never", [], [box(ended(0)), box(ended(1))]) == "Failed"
    assert lifecycle.phase("OnFailure", [], [box(ended(0)), box(ended(0))]) == "Succeeded"


def test_blocked_container_is_retried_after_its_back_off():
    blocked = Blocked("ErrImagePull", "", NOW + timedelta(seconds=2))
    plan = lifecycle.start_plan("Always", [], [box(blocked=blocked)], NOW, SETTINGS)
    assert (plan.start, plan.wake_at, plan.backing_off) == ((), blocked.until, ())
    assert lifecycle.start_plan("Always", [], [box(blocked=blocked)], blocked.until, SETTINGS).start == (
        "main",
    )


def test_oom_kill_is_reported_only_when_the_main_process_was_killed():
    assert lifecycle.recorded_exit(137, 9, oom=True, error="", finished_at=NOW).reason == "OOMKilled"
    assert lifecycle.recorded_exit(1, 0, oom=True, error="", finished_at=NOW).reason == "Error"
    assert (
        lifecycle.recorded_exit(128, 0, oom=False, error="no such file", finished_at=NOW).reason
        == "StartError"
    )

from hypothesis import given
from hypothesis import strategies as st

from serving.embedded.supervisor import restart_policy
from serving.embedded.supervisor.restart_policy import Fail, History, Restart
from serving.settings import SupervisorSettings

SETTINGS = SupervisorSettings()


def ended(history: History, code: int | None, now: float, *, proven: bool = True) -> Restart | Fail:
    return restart_policy.ended(history, code, now=now, proven=proven, settings=SETTINGS)


def test_a_killed_component_is_started_again_within_the_second_that_is_promised() -> None:
    assert ended(History(started=0), -9, 100.0) == Restart(SETTINGS.restart_seconds, History(1, 0))
    assert SETTINGS.restart_seconds + SETTINGS.poll_seconds < 1


def test_one_that_cannot_run_as_asked_fails_up_only_before_everything_was_up_once() -> None:
    assert isinstance(ended(History(), restart_policy.GIVES_UP, 1.0, proven=False), Fail)
    assert isinstance(ended(History(), restart_policy.GIVES_UP, 1.0, proven=True), Restart)


@given(st.lists(st.floats(0, 5), min_size=1, max_size=60))
def test_the_delay_never_shrinks_while_it_keeps_dying_and_is_bounded(lives: list[float]) -> None:
    history, now, delays = History(), 0.0, []
    for life in lives:
        history = restart_policy.started(history, now)
        now += life
        what = ended(history, 1, now)
        assert isinstance(what, Restart)
        history = what.history
        now += what.delay
        delays.append(what.delay)
    assert delays == sorted(delays)
    assert delays[-1] <= SETTINGS.restart_cap_seconds


def test_one_that_ran_long_starts_over_with_the_first_delay() -> None:
    what = ended(History(failures=9, started=0), None, SETTINGS.healthy_seconds)
    assert what == Restart(SETTINGS.restart_seconds, History(1, 0))

from hypothesis import given
from hypothesis import strategies as st

from serving.embedded.supervisor import restart_policy, supervisor
from serving.embedded.supervisor.restart_policy import Fail, Restart, RestartHistory
from serving.settings import SupervisorSettings

SETTINGS = SupervisorSettings()


def ended(history: RestartHistory, code: int | None, now: float, *, proven: bool = True) -> Restart | Fail:
    return restart_policy.ended(history, code, now=now, proven=proven, settings=SETTINGS)


def test_killed_component_is_restarted_within_a_second() -> None:
    assert ended(RestartHistory(started=0), -9, 100.0) == Restart(
        SETTINGS.restart_seconds, RestartHistory(1, 0)
    )
    assert SETTINGS.restart_seconds + supervisor.POLL_SECONDS < 1


def test_misconfigured_component_stops_slipway_up_only_before_all_were_up() -> None:
    assert isinstance(ended(RestartHistory(), restart_policy.GIVES_UP, 1.0, proven=False), Fail)
    assert isinstance(ended(RestartHistory(), restart_policy.GIVES_UP, 1.0, proven=True), Restart)


@given(st.lists(st.floats(0, 5), min_size=1, max_size=60))
def test_restart_delay_grows_to_its_cap_while_a_component_keeps_failing(lives: list[float]) -> None:
    history, now, delays = RestartHistory(), 0.0, []
    for life in lives:
        history = restart_policy.started(history, now)
        now += life
        decision = ended(history, 1, now)
        assert isinstance(decision, Restart)
        history = decision.history
        now += decision.delay
        delays.append(decision.delay)
    assert delays == sorted(delays)
    assert delays[-1] <= SETTINGS.restart_cap_seconds


def test_start_that_makes_no_process_is_tried_again_less_and_less_often() -> None:
    history, now, delays = RestartHistory(started=0), 100.0, []
    for _ in range(8):
        decision = restart_policy.failed_start(history, now=now, settings=SETTINGS)
        history, now = decision.history, now + decision.delay
        delays.append(decision.delay)
    assert delays == sorted(delays)
    assert (delays[0], delays[-1]) == (SETTINGS.restart_seconds, SETTINGS.restart_cap_seconds)


def test_restart_delay_is_reset_after_a_long_run() -> None:
    decision = ended(RestartHistory(failures=9, started=0), None, SETTINGS.healthy_seconds)
    assert decision == Restart(SETTINGS.restart_seconds, RestartHistory(1, 0))


@given(st.floats(0, 100), st.floats(0, 100))
def test_component_is_hung_after_its_silence_and_not_while_it_starts(answered: float, silence: float) -> None:
    history, now = RestartHistory(started=0), answered + silence
    hung = restart_policy.is_hung(history, answered, now=now, settings=SETTINGS)
    assert hung == (now - answered > SETTINGS.hang_seconds)
    starting = restart_policy.is_hung(history, None, now=now, settings=SETTINGS)
    assert starting == (now > SETTINGS.start_seconds)


def test_hung_component_is_back_within_ten_seconds() -> None:
    noticed = supervisor.ASK_SECONDS + SETTINGS.hang_seconds + supervisor.POLL_SECONDS
    assert noticed + SETTINGS.restart_seconds < 10

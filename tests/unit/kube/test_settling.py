"""A write waits from its first change on; own writes put it off, a fight of writers does not."""

import pytest

from serving import clock
from serving.kube import Key, Settling
from serving.kube.settling import MOST_PUT_OFFS

KEY = Key("default", "a")


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(clock, "monotonic", lambda: now[0])
    return now


def test_wait_counts_from_the_first_change_when_others_follow(now: list[float]) -> None:
    settling = Settling()
    assert settling.seconds_left(KEY, 1.0) == 1.0
    now[0] += 0.75
    assert settling.seconds_left(KEY, 1.0) == 0.25
    now[0] += 0.25
    assert settling.seconds_left(KEY, 1.0) <= 0


def test_wait_begins_anew_when_it_has_ended(now: list[float]) -> None:
    settling = Settling()
    settling.seconds_left(KEY, 1.0)
    now[0] += 1.0
    settling.end(KEY)
    assert settling.seconds_left(KEY, 1.0) == 1.0


def test_wait_begins_anew_at_an_own_write_when_it_is_not_the_sixth(now: list[float]) -> None:
    settling = Settling()
    for _ in range(MOST_PUT_OFFS):
        now[0] += 1.0
        settling.put_off(KEY)
        assert settling.seconds_left(KEY, 1.0) == 1.0
    now[0] += 1.0
    settling.put_off(KEY)
    assert settling.seconds_left(KEY, 1.0) <= 0

"""Loads are plausible or not, and are split into their idle and their busy part."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from autoscaler.observation import Load

LOAD = Load(100.0, 130.0, arrivals=50, work=70, finished=45, in_flight=5, held=1, latency=0.2, errors=1)


def test_a_load_is_split_when_it_began_idle() -> None:
    quiet, busy = replace(LOAD, idle=25.0).split()
    assert quiet == Load(100.0, 125.0, 0, 0, 0, 0, 0, idle=25.0)
    assert busy == replace(LOAD, start=125.0)


@given(st.sampled_from([0.0, 30.0]))
def test_load_that_is_always_or_never_idle_is_not_split(idle: float) -> None:
    load = replace(LOAD, idle=idle)
    assert load.split() == (load,)


@given(st.floats().filter(lambda idle: not 0 <= idle <= 30))
def test_a_load_is_absurd_when_its_idle_time_is_longer_than_its_span(idle: float) -> None:
    assert not replace(LOAD, idle=idle).is_plausible

import numpy as np
import pytest

from autoscaler.simulate.delivery import Delivery, readings


def arrivals(delivery: Delivery, seconds: float = 20_000) -> tuple[np.ndarray, np.ndarray]:
    times = readings(delivery, seconds, np.random.default_rng(4))
    return np.array(times.taken), np.array(times.arrived)


def test_readings_arrive_late_and_in_order() -> None:
    times, known = arrivals(Delivery())
    assert (known - times).min() >= 5
    assert (known - times).max() <= 15
    assert (np.diff(known) >= 0).all()


def test_one_in_a_hundred_never_arrives() -> None:
    times, _ = arrivals(Delivery())
    assert len(times) == pytest.approx(4000 * 0.99, rel=0.01)


def test_nothing_arrives_of_an_outage() -> None:
    times, _ = arrivals(Delivery(missing=0, outages=((100, 700),)))
    assert not ((times >= 100) & (times < 700)).any()
    assert len(times) == 3999 - 120

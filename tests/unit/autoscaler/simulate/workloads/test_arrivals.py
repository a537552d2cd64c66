import numpy as np
import pytest

from autoscaler.simulate.workloads import arrivals
from autoscaler.simulate.workloads.traces import BinTrace, ClientTrace, Law


def draws() -> np.random.Generator:
    return np.random.default_rng(5)


def bins(*rates: float, step: float = 600.0) -> BinTrace:
    return BinTrace("x", 0.0, step, np.array(rates))


def test_bins_keep_their_totals_between_straight_lines() -> None:
    rates = arrivals.rates(bins(1, 3, 2), 0, 1800, 10)
    assert rates.reshape(3, 60).mean(axis=1) == pytest.approx([1, 3, 2])
    assert np.abs(np.diff(rates)).max() < 1


def test_bins_shorter_than_a_step_are_summed() -> None:
    assert arrivals.rates(bins(1, 3, 2, 4, step=30), 0, 120, 60).tolist() == [2, 3]


def test_counts_per_second_are_unchanged() -> None:
    assert arrivals.flow(bins(4, 0, 7, step=1), 1, 2, draws()).tolist() == [0, 7]


def test_arrivals_of_rates_vary_as_a_poisson_process() -> None:
    flow = arrivals.flow(bins(*[20] * 10), 0, 6000, draws())
    assert flow.mean() == pytest.approx(20, rel=0.02)
    assert flow.var() == pytest.approx(20, rel=0.1)


def test_a_multiple_of_the_load_has_as_many_times_the_requests() -> None:
    assert arrivals.flow(bins(*[2] * 10), 0, 6000, draws(), times=10).mean() == pytest.approx(20, rel=0.02)


@pytest.mark.parametrize("family", ["G", "W"])
def test_a_client_has_the_requests_of_its_rates_in_each_window(family: str) -> None:
    laws = [Law(0, 600, 0.1, family, 0.4), Law(1200, 600, 0.5, family, 0.4)]
    times = arrivals.client_times(laws, 0, 1800, draws())
    assert np.histogram(times, [0, 600, 1200, 1800])[0].tolist() == [60, 0, 300]
    assert (np.diff(times) >= 0).all()


@pytest.mark.parametrize("rate", [0.005, 0.0125, 0.0225])
def test_clients_keep_their_mean_when_a_window_has_a_fraction_of_a_request(rate: float) -> None:
    random_values = draws()
    laws = [Law(start, 60, rate, "G", 1.0) for start in range(0, 3600, 60)]
    requests = sum(len(arrivals.client_times(laws, 0, 3600, random_values)) for _ in range(100))
    assert requests == pytest.approx(rate * 3600 * 100, rel=0.1)


@pytest.mark.parametrize(("rate", "requests"), [(0.1533, 92), (0.001667, 1), (1.332, 799)])
def test_a_rate_in_four_digits_gives_the_recorded_count(rate: float, requests: int) -> None:
    random_values = draws()
    counts = {
        len(arrivals.client_times([Law(0, 600, rate, "G", 1.0)], 0, 600, random_values)) for _ in range(50)
    }
    assert counts == {requests}


def test_a_small_shape_makes_bursts() -> None:
    def spread(shape: float) -> float:
        times = arrivals.client_times([Law(0, 6000, 1.0, "G", shape)], 0, 6000, draws())
        return float(np.diff(times).std() / np.diff(times).mean())

    assert spread(0.1) > 2 * spread(1.0) > 1.5


def test_only_the_requested_span_of_a_client_is_returned() -> None:
    times = arrivals.client_times([Law(0, 600, 1.0, "G", 1.0)], 300, 100, draws())
    assert 50 < len(times) < 150
    assert 0 <= times.min() <= times.max() < 100


def test_clients_belong_to_rates_with_the_same_sums() -> None:
    clients = ClientTrace(
        "c", 0, 1200, {"a": (Law(0, 600, 1.0, "G", 1),), "b": (Law(600, 600, 2.0, "G", 1),)}
    )
    assert arrivals.of_clients(bins(1, 2), [clients]) is clients
    assert arrivals.of_clients(bins(1, 3), [clients]) is None
    assert arrivals.of_clients(bins(1, 1, 1), [clients]) is None


def test_single_requests_are_as_many_as_counted() -> None:
    times = arrivals.within(np.array([0.0, 3.0, 1.0]), draws())
    assert np.histogram(times, [0, 1, 2, 3])[0].tolist() == [0, 3, 1]


def test_rates_below_one_per_second_keep_their_mean_as_whole_numbers() -> None:
    counts = arrivals.whole(np.full(20_000, 0.3), draws())
    assert set(counts) == {0.0, 1.0}
    assert counts.mean() == pytest.approx(0.3, rel=0.05)
    assert arrivals.whole(np.array([0.0, 2.0, 7.0]), draws()).tolist() == [0, 2, 7]

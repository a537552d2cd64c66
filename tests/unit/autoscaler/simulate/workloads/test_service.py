"""A service with the unchanged load of one trace."""

import numpy as np
import pytest

from autoscaler.simulate.workloads.load import TIMEOUT, Requests
from autoscaler.simulate.workloads.service import ServiceOptions, service
from autoscaler.simulate.workloads.traces import BinTrace, UnreadableTrace, parse

DAY = 86_400


def bins(days: float, rate: float = 100.0) -> BinTrace:
    return BinTrace("x.csv", 1_700_000_000.0, 60.0, np.full(int(days * 1440), rate))


def test_last_two_days_are_simulated_by_default() -> None:
    simulated = service("x", bins(10), ServiceOptions(), 0).workload
    assert simulated.seconds == 2 * DAY
    assert simulated.start == 1_700_000_000 + 8 * DAY
    assert len(simulated.history.work) == 8 * 1440
    assert simulated.history.end == simulated.start


def test_a_quarter_is_history_when_the_trace_is_short() -> None:
    simulated = service("x", bins(1), ServiceOptions(), 0).workload
    assert simulated.seconds == 0.75 * DAY
    assert len(simulated.history.work) == 0.25 * 1440


def test_all_of_an_hours_trace_is_simulated() -> None:
    simulated = service("x", bins(1 / 24), ServiceOptions(), 0).workload
    assert (simulated.seconds, len(simulated.history.work)) == (3600, 0)


def test_history_has_the_requested_length() -> None:
    simulated = service("x", bins(10), ServiceOptions(days=1, history=3), 0).workload
    assert simulated.seconds == DAY
    assert len(simulated.history.work) == 3 * 1440


def test_history_keeps_its_length_when_history_and_days_do_not_both_fit() -> None:
    simulated = service("x", bins(2), ServiceOptions(days=2, history=0.5), 0).workload
    assert simulated.seconds == 1.5 * DAY
    assert len(simulated.history.work) == 0.5 * 1440


def test_history_of_the_whole_trace_is_refused_with_the_file() -> None:
    with pytest.raises(UnreadableTrace, match=r"x\.csv: of 2 days, 2 days of history leave nothing"):
        service("x", bins(2), ServiceOptions(history=2), 0)


def test_rates_are_not_multiplied_when_they_are_low() -> None:
    simulated = service("x", bins(1, rate=0.5), ServiceOptions(), 0).workload
    assert simulated.load.per_second(simulated.seconds).arrivals.mean() == pytest.approx(0.5, rel=0.05)


def test_the_mean_load_needs_fifteen_replicas_when_no_capacity_is_known() -> None:
    simulated = service("x", bins(1), ServiceOptions(), 0)
    assert simulated.workload.replica.rate == pytest.approx(100 / 15, rel=0.01)
    assert "--capacity" in simulated.assumed[0]


def test_a_replica_is_no_smaller_than_a_small_one_when_few_requests_come() -> None:
    simulated = service("x", bins(1, rate=0.5), ServiceOptions(), 0)
    assert (simulated.workload.replica.rate, simulated.workload.replica.concurrency) == (2, 4)
    assert "the load needs 0.2" in simulated.assumed[0]


def test_complete_options_leave_no_assumption() -> None:
    simulated = service("x", bins(1), ServiceOptions(max_replicas=9, rate=20, concurrency=8), 0)
    assert simulated.assumed == ()
    assert (
        simulated.max_replicas,
        simulated.workload.replica.rate,
        simulated.workload.replica.concurrency,
    ) == (9, 20, 8)
    assert simulated.workload.replica.service_seconds == pytest.approx(8 / 20)


def test_requests_with_tokens_are_measured_in_tokens() -> None:
    rows = "\n".join(f"{second},1000,100" for second in range(0, 600, 2))
    simulated = service("x", parse("x", f"t_s,input_tokens,output_tokens\n{rows}\n"), ServiceOptions(), 0)
    assert simulated.unit == "tokens"
    assert isinstance(simulated.workload.load, Requests)
    assert simulated.workload.load.work[0] == 1400


def test_concurrency_of_a_replica_is_the_requested_one_when_requests_have_gpu_seconds() -> None:
    rows = "\n".join(f"{second},3" for second in range(0, 600, 10))
    trace = parse("x", f"t_s,exec_time_s\n{rows}\n")
    simulated = service("x", trace, ServiceOptions(concurrency=4), 0)
    replica = simulated.workload.replica
    assert (replica.rate, replica.concurrency, replica.service_seconds) == (1, 4, 12)
    assert isinstance(simulated.workload.load, Requests)
    assert simulated.workload.load.service[0] == 12
    alone = service("x", trace, ServiceOptions(), 0).workload.replica
    assert (alone.rate, alone.concurrency, alone.service_seconds) == (1, 1, 3)


def test_history_ends_where_the_run_begins_when_it_is_no_whole_number_of_minutes() -> None:
    per_second = BinTrace("x.csv", 1_700_000_000.0, 1.0, np.arange(21_700, dtype=np.float64))
    simulated = service("x", per_second, ServiceOptions(), 0).workload
    begin = 21_700 - simulated.seconds
    assert begin % 60 != 0
    assert simulated.history.end == simulated.start == per_second.start + begin
    last_minute = sum(range(begin - 60, begin))
    assert simulated.history.arrivals[-1] == pytest.approx(last_minute)


@pytest.mark.parametrize("last", [600, 600.9])
def test_last_request_of_a_trace_is_simulated(last: float) -> None:
    rows = "\n".join(str(time) for time in (0, 300, last))
    simulated = service("x", parse("x", f"t_s\n{rows}\n"), ServiceOptions(), 0).workload
    assert simulated.load.per_second(simulated.seconds).arrivals.sum() == 3
    assert simulated.seconds == 601


def test_run_ends_with_the_trace_when_its_length_is_no_whole_number_of_seconds() -> None:
    rates = np.full(601, 10.0)
    rates[-1] = 1000.0
    simulated = service("x", BinTrace("x.csv", 0.0, 0.5, rates), ServiceOptions(), 0).workload
    assert (simulated.start, simulated.seconds) == (0.5, 300)
    assert simulated.load.per_second(300).arrivals[-1] == pytest.approx(505, abs=1)


def test_requests_are_simulated_one_by_one_when_only_the_history_is_busy() -> None:
    rates = np.concatenate([np.full(8 * 1440, 500.0), np.full(2 * 1440, 2.0)])
    simulated = service("x", BinTrace("x.csv", 0.0, 60.0, rates), ServiceOptions(), 0).workload
    assert isinstance(simulated.load, Requests)


def test_a_trace_of_seconds_is_refused_with_its_length() -> None:
    with pytest.raises(UnreadableTrace, match=r"x\.csv: 0 s are too short"):
        service("x", BinTrace("x.csv", 0.0, 1.0, np.empty(0)), ServiceOptions(), 0)


def test_a_part_without_requests_is_refused() -> None:
    silent = BinTrace("x.csv", 0.0, 60.0, np.zeros(100))
    with pytest.raises(UnreadableTrace, match=r"x\.csv: no request arrives"):
        service("x", silent, ServiceOptions(), 0)


def test_client_can_be_chosen_and_an_unknown_one_is_refused_with_the_known_ones() -> None:
    rows = "\n".join(
        f"{window},{client},{rate}"
        for window in range(0, 36000, 600)
        for client, rate in (("a", 1), ("b", 9))
    )
    trace = parse("clients.csv", f"window_start_s,client_id,rate_rps\n{rows}\n")
    simulated = service("x", trace, ServiceOptions(client="a", history=0), 0).workload
    assert simulated.load.per_second(simulated.seconds).arrivals.mean() == pytest.approx(1, rel=0.1)
    with pytest.raises(UnreadableTrace, match=r"clients\.csv: there is no client 'c'; there are a, b"):
        service("x", trace, ServiceOptions(client="c"), 0)


def test_busy_slots_are_those_of_running_requests_when_other_requests_took_no_time() -> None:
    rows = "\n".join(f"{second},{0 if second % 2 else 5}" for second in range(600))
    workload = service("x", parse("x", f"t_s,exec_time_s\n{rows}\n"), ServiceOptions(), 0).workload
    plant = workload.plant()
    busy = []
    for second in range(1, 9):
        plant.advance(second, 10)
        busy.append(plant.counts().busy)
    assert busy == [1, 1, 2, 2, 2, 2, 2, 2]


@pytest.mark.parametrize("rate", [0.2, 20.0])
def test_allowed_wait_is_shorter_than_the_timeout_when_service_takes_longer(rate: float) -> None:
    options = ServiceOptions(rate=rate / 2, concurrency=int(200 * rate))
    simulated = service("x", bins(0.1, rate), options, 0).workload
    assert simulated.replica.service_seconds == pytest.approx(400)
    assert simulated.wait < TIMEOUT


def test_rates_below_one_per_second_are_simulated() -> None:
    trace = BinTrace("x.csv", 1_700_000_000.0, 1.0, np.full(3600, 0.3))
    simulated = service("x", trace, ServiceOptions(), 0).workload
    assert isinstance(simulated.load, Requests)
    assert len(simulated.load.times) == pytest.approx(0.3 * 3600, rel=0.1)

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.embedded.kubelet.pod.probes import (
    FIRST_PERIOD,
    SHORTEST,
    ContainerProbe,
    ProbeVerdict,
    judge,
    next_delay,
    parse,
    port_of,
    ran_for,
)

READY = ContainerProbe("readiness", {"httpGet": {"port": 1}}, 0, 10, 1, 1, 3)


def verdict_after(probe: ContainerProbe, *answers: tuple[float, bool]) -> ProbeVerdict:
    verdict = ProbeVerdict()
    for at, success in answers:
        verdict = judge(probe, verdict, at, success=success)
    return verdict


@given(st.floats(-1e6, 1e6))
def test_first_probe_waits_for_its_delay_at_most_when_the_clock_was_set_back(seconds: float):
    start = datetime(2026, 1, 1, tzinfo=UTC)
    passed = ran_for(start, start + timedelta(seconds=seconds))
    assert passed == pytest.approx(max(seconds, 0), abs=1e-5)


def test_defaults_are_those_of_kubernetes():
    (probe,) = parse({"livenessProbe": {"tcpSocket": {"port": 1}}})
    assert probe == ContainerProbe("liveness", {"tcpSocket": {"port": 1}}, 0, 10, 1, 1, 3)


def test_early_failures_count_at_most_once_a_period():
    assert verdict_after(READY, *((n / 10, False) for n in range(50))).ok is None
    assert verdict_after(READY, (0, False), (10, False), (20, False)).ok is False


def test_each_failure_of_a_liveness_probe_counts_when_answers_come_in_less_than_a_period():
    liveness = ContainerProbe("liveness", {"httpGet": {"port": 1}}, 0, 10, 5, 1, 3)
    # The first one has no answer within its timeout; the others, 10 s apart, are refused at once.
    assert verdict_after(liveness, (5, False), (10.001, False), (20.001, False)).ok is False


def test_a_success_resets_the_failures():
    assert (
        verdict_after(READY, (0, True), (10, False), (20, False), (30, True), (40, False), (50, False)).ok
        is True
    )
    assert verdict_after(READY, (0, True), (10, False), (20, False), (30, False)).ok is False


def test_probe_is_sent_often_until_it_has_succeeded_once():
    assert next_delay(READY, ProbeVerdict(), 0.0, 0.0) == SHORTEST
    assert next_delay(READY, ProbeVerdict(), 0.5, 0.0) == pytest.approx(0.05)
    assert next_delay(READY, ProbeVerdict(), 60.0, 0.0) == FIRST_PERIOD
    assert next_delay(READY, verdict_after(READY, (0, True)), 0.1, 0.0) == 10
    assert next_delay(READY, verdict_after(READY, (0, True), (1, False)), 0.1, 0.0) == 10
    assert next_delay(ContainerProbe("liveness", {}, 0, 10, 1, 1, 3), ProbeVerdict(), 0.0, 0.0) == 10


@given(st.floats(0, 100))
def test_period_is_between_the_beginnings_of_two_probes(took):
    delay = next_delay(READY, verdict_after(READY, (0, True)), 60.0, took)
    assert took + delay == pytest.approx(max(READY.period, took), abs=2 * SHORTEST)


def test_exec_probe_is_run_at_most_once_a_second():
    assert (
        next_delay(ContainerProbe("readiness", {"exec": {}}, 0, 10, 1, 1, 3), ProbeVerdict(), 0.0, 0.0) == 1
    )


@given(st.lists(st.booleans(), min_size=1), st.integers(1, 4), st.integers(1, 4))
def test_verdict_needs_consecutive_answers_up_to_its_threshold(answers, successes, failures):
    probe = ContainerProbe("readiness", {}, 0, 1, 1, successes, failures)
    verdict = verdict_after(probe, *((float(n), answer) for n, answer in enumerate(answers)))
    expected = None
    for end in range(1, len(answers) + 1):
        if end >= successes and all(answers[end - successes : end]):
            expected = True
        if end >= failures and not any(answers[end - failures : end]):
            expected = False
    assert verdict.ok is expected


def test_port_is_resolved_by_name():
    assert port_of({"ports": [{"name": "http", "containerPort": 8080}]}, "http") == 8080
    assert port_of({}, "81") == 81

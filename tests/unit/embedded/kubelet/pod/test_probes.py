import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.embedded.kubelet.pod.probes import (
    FIRST_PERIOD,
    SHORTEST,
    Probe,
    Verdict,
    judge,
    next_delay,
    parse,
    port_of,
)

READY = Probe("readiness", {"httpGet": {"port": 1}}, 0, 10, 1, 1, 3)


def told(probe: Probe, *answers: tuple[float, bool]) -> Verdict:
    verdict = Verdict()
    for at, success in answers:
        verdict = judge(probe, verdict, success, at)
    return verdict


def test_defaults_are_those_of_kubernetes():
    (probe,) = parse({"livenessProbe": {"tcpSocket": {"port": 1}}})
    assert probe == Probe("liveness", {"tcpSocket": {"port": 1}}, 0, 10, 1, 1, 3)


def test_early_failures_count_at_most_once_a_period():
    assert told(READY, *((n / 10, False) for n in range(50))).ok is None
    assert told(READY, (0, False), (10, False), (20, False)).ok is False


def test_one_success_ends_a_row_of_failures():
    assert told(READY, (0, True), (10, False), (20, False), (30, True), (40, False), (50, False)).ok is True
    assert told(READY, (0, True), (10, False), (20, False), (30, False)).ok is False


def test_a_probe_is_asked_often_until_it_has_succeeded_once():
    assert next_delay(READY, Verdict(), 0.0) == SHORTEST
    assert next_delay(READY, Verdict(), 0.5) == pytest.approx(0.05)
    assert next_delay(READY, Verdict(), 60.0) == FIRST_PERIOD
    assert next_delay(READY, told(READY, (0, True)), 0.1) == 10
    assert next_delay(READY, told(READY, (0, True), (1, False)), 0.1) == 10
    assert next_delay(Probe("liveness", {}, 0, 10, 1, 1, 3), Verdict(), 0.0) == 10


def test_a_command_is_asked_no_more_than_once_a_second():
    assert next_delay(Probe("readiness", {"exec": {}}, 0, 10, 1, 1, 3), Verdict(), 0.0) == 1


@given(st.lists(st.booleans(), min_size=1), st.integers(1, 4), st.integers(1, 4))
def test_a_verdict_needs_as_many_answers_in_a_row_as_its_threshold(answers, successes, failures):
    probe = Probe("readiness", {}, 0, 1, 1, successes, failures)
    verdict = told(probe, *((float(n), answer) for n, answer in enumerate(answers)))
    wanted = None
    for end in range(1, len(answers) + 1):
        if end >= successes and all(answers[end - successes : end]):
            wanted = True
        if end >= failures and not any(answers[end - failures : end]):
            wanted = False
    assert verdict.ok is wanted


def test_a_port_may_be_named():
    assert port_of({"ports": [{"name": "http", "containerPort": 8080}]}, "http") == 8080
    assert port_of({}, "81") == 81

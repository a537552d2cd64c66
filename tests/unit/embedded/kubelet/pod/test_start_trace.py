import datetime as dt
import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.embedded.kubelet.pod.start_trace import NodeStart, condition, kept, trace
from serving.resources import names

SEEN = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
seconds = st.floats(0, 100).map(lambda n: round(n, 3))


def after(passed: float) -> dt.datetime:
    return SEEN + dt.timedelta(seconds=passed)


@given(*([seconds] * 9))
def test_phases_add_up_to_the_whole_start(
    fetch, seal, awaited, process, imports, hashing, load, warmup, probe
):
    begun = fetch + seal + awaited + process
    ready = begun + imports + hashing + load + warmup + probe
    parts = {"spawn": process, "import": imports, "verify": hashing, "load": load, "warmup": warmup}
    headers = {
        "server-timing": ", ".join(f"{name};dur={1000 * spent:.3f}" for name, spent in parts.items()),
        "x-slipway-started": f"{after(begun).timestamp():.6f}",
    }
    result = trace(NodeStart(SEEN, "Zygote", fetch, seal, awaited), SEEN, after(ready), headers)
    figures = json.loads(result.message())
    assert list(figures) == ["seen", "ready", *names.START_PHASES]
    assert sum(figures[phase] for phase in names.START_PHASES) / 1000 == pytest.approx(
        ready, rel=0.02, abs=0.001
    )
    assert figures["verify"] == pytest.approx(1000 * (seal + hashing), abs=0.01)
    assert figures["spawn"] == pytest.approx(1000 * process, abs=0.01)
    assert figures["import"] == pytest.approx(1000 * (awaited + imports), abs=0.01)
    assert figures["probe"] == pytest.approx(1000 * probe, abs=0.01)


def test_start_has_only_the_nodes_phases_when_the_runtime_reports_none():
    result = trace(NodeStart(SEEN, fetch=1.0, verify=0.25), after(2), after(5), {"server-timing": "nonsense"})
    assert result.seconds == {
        "fetch": 1.0,
        "verify": 0.25,
        "spawn": 0.75,
        "import": 0.0,
        "load": 0.0,
        "warmup": 0.0,
        "probe": 3.0,
    }
    assert result.method == "Cold"


@pytest.mark.parametrize("text", ["a" * 60_000, "a" + " " * 60_000, f"load;dur={'9' * 60_000}"])
def test_start_has_only_the_nodes_phases_when_a_replica_reports_an_endless_word(text):
    begun = time.process_time()
    result = trace(NodeStart(SEEN), after(2), after(5), {"server-timing": text})
    assert time.process_time() - begun < 1
    assert (result.seconds["load"], result.seconds["probe"]) == (0.0, 3.0)


def test_phases_are_not_negative_when_the_clock_was_set_back():
    result = trace(NodeStart(SEEN, fetch=2.0), after(1), after(1.5), {"x-slipway-started": "0"})
    assert min(result.seconds.values()) == 0


def test_condition_is_kept_until_there_is_a_new_start():
    type_, holds, reason, message = condition(trace(NodeStart(SEEN, "Zygote"), SEEN, after(1), {}))
    assert (holds, reason) == (True, "Zygote")
    stored = [
        {"type": "Ready", "status": "True"},
        {"type": type_, "status": "True", "reason": reason, "message": message},
    ]
    assert kept(stored) == [(type_, True, reason, message)]
    assert kept(stored[:1]) == []

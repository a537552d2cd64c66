"""The phases of a start-up: durations that add up, in the form of the standard header."""

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.runtimes import startup

SECONDS = st.floats(0, 1e6, allow_nan=False)


def test_headers_have_the_phases_in_order_and_the_start_time() -> None:
    report = startup.StartupReport(1_795_300_651.25)
    for phase, seconds in (("verify", 0.0005), ("import", 1.5), ("load", 0.02), ("warmup", 0.013)):
        report = startup.spent(report, phase, seconds)
    assert dict(report.headers()) == {
        b"server-timing": b"import;dur=1500.000, verify;dur=0.500, load;dur=20.000, warmup;dur=13.000",
        b"x-slipway-started": b"1795300651.250000",
    }


def test_headers_have_the_start_time_before_any_phase() -> None:
    assert startup.StartupReport(5.0).headers() == ((b"x-slipway-started", b"5.000000"),)


@given(st.lists(st.tuples(st.sampled_from(startup.PHASES), SECONDS)), SECONDS)
def test_parts_of_a_phase_are_added(parts: list[tuple[str, float]], started: float) -> None:
    report = startup.StartupReport(started)
    for phase, seconds in parts:
        report = startup.spent(report, phase, seconds)
    shown = dict(report.headers()).get(b"server-timing", b"").decode()
    durations = [(name, float(ms)) for name, ms in re.findall(r"(\w+);dur=([0-9.]+)", shown)]
    assert [name for name, _ in durations] == [
        name for name in startup.PHASES if name in {p for p, _ in parts}
    ]
    assert math.isclose(
        sum(ms for _, ms in durations), sum(s for _, s in parts) * 1000, rel_tol=1e-6, abs_tol=0.01
    )


def test_a_stopwatch_leaves_no_time_between_phases(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter([10.0, 10.5, 12.5, 13.0])
    monkeypatch.setattr(startup.clock, "monotonic", lambda: next(ticks))
    stopwatch = startup.Stopwatch()
    for phase in ("import", "verify", "import"):
        stopwatch.end(phase)
    assert stopwatch.startup.seconds == {"import": 1.0, "verify": 2.0}

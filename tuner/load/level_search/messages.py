"""The message and notes of a trial's end, with figures of its windows."""

from collections.abc import Sequence

from serving.resources.tuning.trial import LatencyAt, Reason, Window
from tuner.load.level_search.state import Finished, State
from tuner.load.level_search.verdicts import LevelVerdict, level_verdicts


def ended(state: State, result: Window, reason: Reason) -> Finished:
    """Return the end of a search with this result."""
    verdicts = level_verdicts(state)
    parts = [f"{_level(state, result.level)}: {_values(state, result)}"]
    if reason == "BreaksConstraint":
        parts.append("no lower load is tried")
    elif reason == "CannotBeatBest":
        parts.append(
            f"no load that meets the constraints gives {state.stop_below:g} requests/s, as the best does"
        )
    else:
        parts.append(_why_no_higher(state, verdicts, result))
    if len(state.windows) > 1:
        parts.append(f"by {len(state.windows)} windows")
    return Finished(
        result, reason, "; ".join(part for part in parts if part), _notes(state, verdicts, result)
    )


def _level(state: State, level: float) -> str:
    if state.load.mode == "open":
        return f"at {level:.4g} requests/s"
    return f"with {level:g} user{'' if level == 1 else 's'}"


def _values(state: State, window: Window) -> str:
    figures = [f"{window.throughput.value:.4g} requests/s answered"]
    for constraint in state.constraints:
        if constraint.metric == "errorRate":
            figures.append(f"{window.error_rate.value:.2%} failed, {constraint.at_most} allowed")
            continue
        name = (
            f"p{constraint.percentile}{'' if constraint.metric == 'latency' else f' of {constraint.metric}'}"
        )
        value = _latency(window, constraint.metric, constraint.percentile)
        measured = f"{1000 * value.value:.4g} ms" if value else "unknown"
        figures.append(f"{name} {measured}, {constraint.at_most} allowed")
    if window.errors and not any(constraint.metric == "errorRate" for constraint in state.constraints):
        figures.append(f"{window.error_rate.value:.2%} failed")
    return ", ".join(figures)


def _latency(window: Window, metric: str, percent: int) -> LatencyAt | None:
    return next((at for at in window.latencies if (at.metric, at.percentile) == (metric, percent)), None)


def _why_no_higher(state: State, verdicts: Sequence[LevelVerdict], result: Window) -> str:
    """Return why the result is no higher load; empty if no measured level shows the reason."""
    higher = [verdict for verdict in verdicts if verdict.level > result.level]
    broken = next((verdict for verdict in higher if verdict.ratio > 1 or not verdict.works), None)
    if broken is not None:
        behind = "" if broken.kept_up else ", fell behind"
        return f"{_level(state, broken.level)}: {_values(state, broken.window)}{behind}"
    if higher and state.load.mode == "closed":
        return f"{_level(state, higher[-1].level)} no more: {higher[-1].rate:.4g} requests/s"
    if higher or state.load.levels:
        return ""
    if result.throughput.value <= 0:
        return "nothing was answered"
    return (
        "no higher load is allowed"
        if result.level >= state.cap
        else "a higher load is not expected to meet the constraints"
    )


def _notes(state: State, verdicts: Sequence[LevelVerdict], result: Window) -> tuple[str, ...]:
    notes = []
    above = [verdict for verdict in verdicts if verdict.level >= result.level]
    limited = [verdict for verdict in above if verdict.window.generator_limited]
    if limited:
        used = max(verdict.window.usage.generator_cpu for verdict in limited)
        notes.append(
            f"GeneratorLimited: {_level(state, limited[0].level)} the load generator wanted {used:.0%} of its"
            " cores, or sent late; the target may give more"
        )
    if not result.steady:
        notes.append("NotSteady: the rate of answers or their latency still had a trend")
    return tuple(notes)

"""The message of a trial's end, from numbers of its windows."""

from collections.abc import Sequence

from serving.resources.trial import LatencyAt, Reason, Window
from tuner.load.level_search.state import Finished, State
from tuner.load.level_search.verdicts import Verdict, verdicts


def ended(state: State, result: Window, reason: Reason) -> Finished:
    """Return the end of a search with this result."""
    found = verdicts(state)
    parts = [f"{_at(state, result.level)}: {_seen(state, result)}"]
    if reason == "BreaksConstraint":
        parts.append("no lower load is tried")
    elif reason == "CannotBeatBest":
        parts.append(
            f"no load that meets the constraints gives {state.stop_below:g} requests/s, as the best does"
        )
    else:
        parts.append(_beyond(state, found, result))
    if len(state.windows) > 1:
        parts.append(f"by {len(state.windows)} windows")
    return Finished(result, reason, "; ".join(part for part in parts if part), _notes(state, found, result))


def _at(state: State, level: float) -> str:
    if state.load.mode == "open":
        return f"at {level:.4g} requests/s"
    return f"with {level:g} user{'' if level == 1 else 's'}"


def _seen(state: State, window: Window) -> str:
    said = [f"{window.throughput.value:.4g} requests/s answered"]
    for constraint in state.constraints:
        if constraint.metric == "errorRate":
            said.append(f"{window.error_rate.value:.2%} failed, {constraint.at_most} allowed")
            continue
        name = (
            f"p{constraint.percentile}{'' if constraint.metric == 'latency' else f' of {constraint.metric}'}"
        )
        value = _latency(window, constraint.metric, constraint.percentile)
        measured = f"{1000 * value.value:.4g} ms" if value else "unknown"
        said.append(f"{name} {measured}, {constraint.at_most} allowed")
    if window.errors and not any(constraint.metric == "errorRate" for constraint in state.constraints):
        said.append(f"{window.error_rate.value:.2%} failed")
    return ", ".join(said)


def _latency(window: Window, metric: str, percent: int) -> LatencyAt | None:
    return next((at for at in window.latencies if (at.metric, at.percentile) == (metric, percent)), None)


def _beyond(state: State, found: Sequence[Verdict], result: Window) -> str:
    higher = [verdict for verdict in found if verdict.level > result.level]
    broken = next((verdict for verdict in higher if verdict.ratio > 1 or not verdict.works), None)
    if broken is not None:
        behind = "" if broken.kept_up else ", fell behind"
        return f"{_at(state, broken.level)}: {_seen(state, broken.window)}{behind}"
    if higher and state.load.mode == "closed":
        return f"{_at(state, higher[-1].level)} no more: {higher[-1].rate:.4g} requests/s"
    if higher or state.load.levels:
        return ""
    if result.throughput.value <= 0:
        return "nothing was answered"
    return (
        "no higher load is allowed"
        if result.level >= state.cap
        else "a higher load is not expected to meet that"
    )


def _notes(state: State, found: Sequence[Verdict], result: Window) -> tuple[str, ...]:
    notes = []
    above = [verdict for verdict in found if verdict.level >= result.level]
    limited = [verdict for verdict in above if verdict.window.generator_limited]
    if limited:
        used = max(verdict.window.usage.generator_cpu for verdict in limited)
        notes.append(
            f"GeneratorLimited: {_at(state, limited[0].level)} the load generator wanted {used:.0%} of its cores, or sent late;"
            " the target may give more"
        )
    if not result.steady:
        notes.append("NotSteady: the rate of answers or their latency still had a trend")
    return tuple(notes)

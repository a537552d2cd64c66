"""What the end of a search says to people; every number in it is in the windows."""

from collections.abc import Sequence

from serving.resources.trial import LatencyAt, Reason, Window
from tuner.load.steps import Finished, State
from tuner.load.verdicts import Verdict, lowest_broken, verdicts


def ended(state: State, result: Verdict, reason: Reason) -> Finished:
    """Return the end of a search whose result is this window."""
    found = verdicts(state)
    parts = [f"{_at(state, result)}: {_seen(state, result)}"]
    if reason == "BreaksConstraint":
        parts.append("no lower load is tried")
    elif reason == "CannotBeatBest":
        parts.append(
            f"no load that meets the constraints gives {state.stop_below:g} requests/s, as the best does"
        )
    else:
        parts.append(_beyond(state, found, result))
    return Finished(
        result.index, reason, "; ".join(part for part in parts if part), _notes(state, found, result)
    )


def _at(state: State, verdict: Verdict) -> str:
    if state.load.mode == "open":
        return f"at {verdict.level:.4g} requests/s"
    return f"with {verdict.level:g} user{'' if verdict.level == 1 else 's'}"


def _seen(state: State, verdict: Verdict) -> str:
    window = verdict.window
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
    if not verdict.kept_up:
        said.append("fell behind")
    return ", ".join(said)


def _latency(window: Window, metric: str, percent: int) -> LatencyAt | None:
    return next((at for at in window.latencies if (at.metric, at.percentile) == (metric, percent)), None)


def _beyond(state: State, found: Sequence[Verdict], result: Verdict) -> str:
    broken = lowest_broken(found)
    if broken is not None and broken.level > result.level:
        return f"{_at(state, broken)}: {_seen(state, broken)}"
    if state.load.levels or broken is not None:
        return ""
    higher = [verdict for verdict in found if verdict.level > result.level]
    if higher:
        return f"{_at(state, higher[0])} no more: {higher[0].rate:.4g} requests/s"
    return "no higher load is allowed" if result.rate > 0 else "nothing was answered"


def _notes(state: State, found: Sequence[Verdict], result: Verdict) -> tuple[str, ...]:
    notes = []
    above = [verdict for verdict in found if verdict.level >= result.level]
    limited = [verdict for verdict in above if verdict.window.generator_limited]
    if limited:
        used = max(verdict.window.usage.generator_cpu for verdict in limited)
        notes.append(
            f"GeneratorLimited: {_at(state, limited[0])} the load generator wanted {used:.0%} of its cores, or sent late;"
            " the target may give more"
        )
    if not result.window.steady:
        notes.append("NotSteady: the rate of answers or their latency still had a trend")
    return tuple(notes)

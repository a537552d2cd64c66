"""Summarises the samples of a window for a Trial's status, and compares them with the constraints."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from serving.resources.tuning.experiment import Constraint
from serving.resources.tuning.trial import Estimate, LatencyAt, Usage, Window
from tuner.constraints import bound_of, measured_value
from tuner.load.windows import backlog, estimates, steadiness
from tuner.load.windows.samples import Floats, Samples

Meets = Literal["Yes", "No", "Unsure"]
_SHOWN = (50, 90, 95, 99)
"""Percentiles of every window."""
_BUSY = 0.9
"""Share of its cores from which the load generator counts as the limit, and not the target."""
_LATE = 0.05
"""Share of requests sent late from which the load generator counts as the limit, and not the target."""
_SLICES = 128
"""Intervals of a window in which answers are counted for the confidence interval of throughput."""
_STUCK = 20.0
"""A request that has waited for so many times the slowest answer of a window counts as failed: the lengths of
generated chats differ by less, and a request without an answer fails only by its timeout, mostly after the
trial."""


def summary(
    samples: Samples,
    constraints: Sequence[Constraint],
    objective_percentile: int | None = None,
) -> Window:
    """Return the summary of a window, without its beginning if the beginning differs from the rest.

    Only `kept_up` is of the whole window, as it compares the first third with the last. Percentiles are of
    answered requests; for `meets`, a failed request is above every bound. If too few samples lie above a
    percentile to bound its interval, the upper end is estimated from an exponential tail, and is at most
    `samples.longest`; `meets` does not use this estimate. The caller sets `start_time` and the replica's
    usage.

    Args:
        samples: of the window.
        constraints: of the experiment.
        objective_percentile: if the experiment's objective is a latency: its percentile.
    """
    start = steadiness.beginning(samples)
    kept = _after(samples, start)
    failed = ~kept.ok
    return Window(
        level=kept.level,
        seconds=kept.seconds,
        requests=len(kept.ok),
        errors=int(failed.sum()),
        throughput=_throughput(kept),
        latencies=_latencies(kept, constraints, objective_percentile),
        tokens_per_second=float(kept.tokens[kept.ok].sum()) / kept.seconds,
        prompt_tokens_per_second=_prompt_tokens(kept) / kept.seconds,
        error_rate=estimates.share(failed.astype(np.float64), additional_ones=_stuck(kept)),
        usage=Usage(generator_cpu=kept.generator_cpu),
        steady=steadiness.steady(samples, start),
        generator_limited=kept.generator_cpu >= _BUSY or kept.late >= _LATE,
        meets=meets(kept, constraints),
        kept_up=backlog.keeps_up(samples) if samples.mode == "open" else None,
    )


def meets(samples: Samples, constraints: Sequence[Constraint]) -> Meets:
    """Return whether the constraints are met: `No` if one is surely broken, else `Unsure` if one may be.

    A constraint may be broken if its bound lies within the 95 % interval, or nothing was measured.
    """
    return within_bounds(
        (_constrained(samples, constraint), bound_of(constraint)) for constraint in constraints
    )


def within_bounds(estimates_and_bounds: Iterable[tuple[Estimate | None, float]]) -> Meets:
    """Return whether every estimate is within its bound; a missing estimate is `Unsure`."""
    answers = [_within_bound(estimate, bound) for estimate, bound in estimates_and_bounds]
    if "No" in answers:
        return "No"
    return "Unsure" if "Unsure" in answers else "Yes"


def worst_ratio(window: Window, constraints: Sequence[Constraint]) -> float:
    """Return the greatest ratio of a constraint's value to its bound; 0 without constraints.

    At 1 or less the window meets the constraints. The ratio is infinite if a constraint has no value: too
    many requests failed for its percentile, or nothing was measured.
    """
    return max((_ratio(window, constraint) for constraint in constraints), default=0.0)


def _ratio(window: Window, constraint: Constraint) -> float:
    measured = measured_value(window, constraint.metric, constraint.percentile)
    if measured is None:
        return math.inf
    bound = bound_of(constraint)
    if bound > 0:
        return measured.value / bound
    return 0.0 if measured.value == 0 else math.inf


def _within_bound(estimate: Estimate | None, bound: float) -> Meets:
    if estimate is None or estimate.low <= bound < estimate.high:
        return "Unsure"
    return "No" if estimate.low > bound else "Yes"


def _constrained(samples: Samples, constraint: Constraint) -> Estimate | None:
    """Estimate a constraint's value, with failed requests above every bound; None if nothing is known."""
    if constraint.metric == "errorRate":
        return estimates.share((~samples.ok).astype(np.float64), additional_ones=_stuck(samples))
    percent = constraint.percentile
    if constraint.metric == "latency":
        values = np.where(samples.ok, samples.latency, samples.longest)
        return _percentile_with_waiting(values, samples.unfinished, percent, longest=samples.longest)
    if constraint.metric == "ttft":
        values = samples.ttft[samples.ttft >= 0]
        if len(values) + len(samples.silent) == 0:
            return None
        failed = int((~samples.ok).sum())
        return _percentile_with_waiting(
            values, samples.silent, percent, censored=failed, longest=samples.longest
        )
    # The metric is the inter-token latency.
    if len(samples.itl) == 0:
        return None
    return estimates.percentile(samples.itl, percent, longest=samples.longest)


def _percentile_with_waiting(
    values: Floats, ages: Floats, percent: float, *, censored: int = 0, longest: float
) -> Estimate:
    """Estimate a percentile of times, counting the requests that have already waited longer than it.

    For the value and the lower end, these requests count with their ages so far, so that a window that ends
    during a batch has a finite percentile. For the upper end they wait for ever.

    Args:
        values: known times in seconds, in the order of time.
        ages: seconds that each waiting request has waited so far.
        percent: 0 to 100.
        censored: number of failed requests, which count as waiting for ever.
        longest: greatest possible time in seconds.
    """
    known = estimates.percentile(values, percent, censored=censored, longest=longest)
    # With neither values nor failures `known.value` is a mere stand-in, `longest`, which no age exceeds.
    waiting = ages[ages > known.value] if len(values) + censored else ages
    if len(waiting) == 0:
        return known
    least = estimates.percentile(np.append(values, waiting), percent, censored=censored, longest=longest)
    most = estimates.percentile(values, percent, censored=censored + len(waiting), longest=longest)
    return Estimate(value=least.value, low=least.low, high=max(most.high, least.value))


def _latencies(
    samples: Samples, constraints: Sequence[Constraint], objective_percentile: int | None
) -> list[LatencyAt]:
    # For each metric the known times, and the ages of the requests that still wait.
    by_metric: dict[Literal["latency", "ttft", "itl"], tuple[Floats, Floats]] = {
        "latency": (samples.latency[samples.ok], samples.unfinished),
        "ttft": (samples.ttft[samples.ttft >= 0], samples.silent),
        "itl": (samples.itl, np.empty(0)),
    }
    latencies = []
    for metric, (values, ages) in by_metric.items():
        if not len(values):
            continue
        percentiles = {constraint.percentile for constraint in constraints if constraint.metric == metric}
        if metric == "latency" and objective_percentile is not None:
            percentiles.add(objective_percentile)
        for percent in sorted(percentiles.union(_SHOWN)):
            estimate = _percentile_with_waiting(values, ages, percent, longest=samples.longest)
            if estimate.high >= samples.longest > estimate.value:
                end = estimates.tail_end(values, percent, longest=samples.longest)
                estimate = estimate.model_copy(update={"high": max(end, estimate.value)})
            latencies.append(LatencyAt(metric=metric, percentile=percent, **estimate.model_dump()))
    return latencies


def _throughput(samples: Samples) -> Estimate:
    """Estimate the answers per second; the interval follows from batch means over time."""
    counts = np.histogram(samples.done[samples.ok], np.linspace(0, samples.seconds, _SLICES + 1))[0]
    by_batches = estimates.mean(counts * (_SLICES / samples.seconds))
    value = float(samples.ok.sum()) / samples.seconds
    return Estimate(value=value, low=min(by_batches.low, value), high=max(by_batches.high, value))


def _prompt_tokens(samples: Samples) -> float:
    """Return the prompt tokens of all answers; 0 if an answer has no count, as a part says little of all."""
    counts = samples.prompt_tokens[samples.ok]
    return float(counts.sum()) if counts.all() else 0.0


def _stuck(samples: Samples) -> int:
    """Return the number of waiting requests that count as failed.

    Such a request has waited for the whole window, and for _STUCK times as long as the slowest answer took,
    if there was an answer. Other requests may be answered yet, as answers of language models take longer than
    windows.
    """
    slowest = float(samples.latency[samples.ok].max(initial=0.0))
    return int((samples.unfinished >= max(samples.seconds, _STUCK * slowest)).sum())


def _after(samples: Samples, start: float) -> Samples:
    """Return the part of a window from `start` seconds on."""
    if start <= 0:
        return samples
    kept, of_streams = samples.done >= start, samples.itl_done >= start
    return replace(
        samples,
        seconds=samples.seconds - start,
        intended=samples.intended[kept] - start,
        latency=samples.latency[kept],
        ok=samples.ok[kept],
        tokens=samples.tokens[kept],
        prompt_tokens=samples.prompt_tokens[kept],
        ttft=samples.ttft[kept],
        itl=samples.itl[of_streams],
        itl_done=samples.itl_done[of_streams] - start,
    )

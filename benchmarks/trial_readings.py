"""Differences between trials that should agree, for three evaluations of the same windows.

There are 288 recorded trials: three rounds of `live_tuning.py` (`benchmarks/data/trial_windows.csv.gz`), two
cores of an AMD EPYC, windows of 2 s, p99 within 100 ms. Those with batches of 64 and the same cores differ in
memory and threads only, which explain next to nothing (`by`: the mean deviation for each of their values, and
in each round). The figures are standard deviations of the logarithm for three evaluations:

- recorded: the throughput of the trial's last load, from one window, as a Trial's result was at that time.
- curves: the result of a Trial today, from curves through all windows
  (`tuner/load/level_search/load_model.py`), at the load whose next window meets the limit with a
  probability of 99 %.
- most: the highest throughput of any window, without the limit: about the variation of the machine itself.

It measures nothing new, so it takes a second. `correlation` is that of the deviations of consecutive trials,
minutes apart: the drift of the machine. `scatter` is the deviation of windows from their trial's curve,
beyond the noise of their few requests: the median over trials, of the logarithm, as `load_model.py`
assumes it. `broken` is the share of windows that break the limit at the resulting load.
"""

import argparse
import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from rig.harness import report
from rig.searches import recorded_trials
from rig.searches.recorded_trials import LIMIT, LOAD, Window

from tuner.constraints import bound_of
from tuner.load.level_search import highest_load, load_model, results
from tuner.load.level_search.state import State
from tuner.settings import DEFAULTS

BATCH, CORES = "64", ("500m", "750m", "1")
"""Specs near the best; with fewer cores some trials break the limit at any load."""
BY = ("memory", "threads", "round")
WHOLE, NEAR = LOAD.window_seconds / 2, math.log(highest_load.RESOLUTION)
"""Least seconds of a whole window, and the tolerance between equal loads."""
UNEXPECTING = replace(load_model.PRIOR, worth=1e-6)
"""Without a prior, so the scatter of windows is their own."""

Trials = Mapping[str, list[list[Window]]]
"""The windows of each trial, by its cores."""


def recorded(windows: Sequence[Window]) -> float:
    """Return the log throughput of the trial's recorded result."""
    return math.log(next(float(window["throughput"]) for window in windows if window["result"] == "1"))


def most(windows: Sequence[Window]) -> float:
    """Return the highest log throughput of any window."""
    return math.log(max(float(window["throughput"]) for window in windows))


def curves(windows: Sequence[Window]) -> float:
    """Return the log throughput of the result."""
    return math.log(results.result(_state(windows)).throughput.value)


def _state(windows: Sequence[Window]) -> State:
    measured = [recorded_trials.measured(window) for window in windows]
    return results.state_of(LOAD, [LIMIT], measured, DEFAULTS.load)


READINGS = {"recorded": recorded, "curves": curves, "most": most}


def scatter(by_cores: Trials) -> dict[str, float]:
    """Return the deviations of windows from their trial's curves."""
    deviations = []
    for windows in (windows for trials_of_cores in by_cores.values() for windows in trials_of_cores):
        state = _state(windows)
        read = load_model.fit(state, state.windows, ())
        assert read is not None
        with mock.patch.object(load_model, "PRIOR", UNEXPECTING):
            through = read.curves(results.result(state).level)
        deviations.append((through.latencies["latency", 99].scatter, through.cycle.scatter))
    p99, rate = np.median(deviations, axis=0)
    return {"p99": round(float(p99), 3), "throughput": round(float(rate), 3)}


def trials(path: Path) -> Trials:
    """Return the windows of each relevant trial in the order of time, by its cores."""
    results: Trials = {cores: [] for cores in CORES}
    for windows in recorded_trials.trials(path).values():
        if windows[0]["batch"] == BATCH and windows[0]["cpu"] in CORES:
            results[windows[0]["cpu"]].append(windows)
    return results


def _figures(reading: Callable[[Sequence[Window]], float], of_cores: Trials) -> dict[str, Any]:
    """Return the differences between trials by one evaluation of their windows."""
    residuals: list[tuple[Window, float]] = []
    by_cores = {}
    for cores, trials_of_cores in of_cores.items():
        values = np.array([reading(windows) for windows in trials_of_cores])
        by_cores[cores] = round(float(values.std(ddof=1)), 3)
        residuals += zip((windows[0] for windows in trials_of_cores), values - values.mean(), strict=True)
    in_turn = np.array([value for _, value in sorted(residuals, key=lambda entry: entry[0]["start"])])
    by: dict[str, dict[str, list[float]]] = {name: defaultdict(list) for name in BY}
    for window, value in residuals:
        for name, values_of in by.items():
            values_of[window[name]].append(value)
    return {
        "deviation": round(math.sqrt(float(in_turn @ in_turn) / (len(in_turn) - len(CORES))), 3),
        "byCores": by_cores,
        "by": {
            name: {
                key: round(float(np.mean(residuals_of)), 3)
                for key, residuals_of in sorted(trials_of_cores.items())
            }
            for name, trials_of_cores in by.items()
        },
        "correlation": round(float(np.corrcoef(in_turn[:-1], in_turn[1:])[0, 1]), 2),
        "trials": len(in_turn),
    }


def broken(by_cores: Trials) -> dict[str, float]:
    """Return by cores the share of other trials' whole windows at a trial's load that broke the limit.

    Most of these windows followed a broken one and were an hour apart, so they break the limit more often
    than the trial's next window does.
    """
    shares = {}
    for cores, trials_of_cores in by_cores.items():
        seen: list[bool] = []
        for windows in trials_of_cores:
            level = results.result(_state(windows)).level
            others = (window for trial in trials_of_cores if trial is not windows for window in trial)
            seen += [
                float(window["p99_s"]) > bound_of(LIMIT)
                for window in others
                if window["p99_s"]
                and float(window["seconds"]) > WHOLE
                and abs(math.log(float(window["level"]) / level)) < NEAR
            ]
        shares[cores] = round(sum(seen) / len(seen), 3)
    return shares


def main() -> None:
    """Evaluate the trials, and report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="the same: it takes a second")
    parser.add_argument(
        "--grid",
        type=int,
        choices=recorded_trials.GRIDS,
        help="recorded grid of trials as they run now; without it, the grid of earlier trials",
    )
    grid = parser.parse_args().grid
    recorded_by_cores = trials(recorded_trials.GRIDS[grid] if grid else recorded_trials.BEFORE)
    readings = {
        name: how
        for name, how in READINGS.items()
        if how is not recorded or "result" in next(iter(recorded_by_cores.values()))[0][0]
    }
    figures: dict[str, Any] = {name: _figures(how, recorded_by_cores) for name, how in readings.items()}
    figures["scatter"], figures["broken"] = scatter(recorded_by_cores), broken(recorded_by_cores)
    report("trial_readings", figures, [])


if __name__ == "__main__":
    main()

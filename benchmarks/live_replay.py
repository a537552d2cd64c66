"""Searches replayed on recorded live grids: how often the recommended spec is within the interval of the
best.

`live_tuning.py` makes three searches of 20 trials, because each takes minutes; three searches cannot measure
how often a search fails. Here a measurement of a spec is one of its recorded trials, drawn at random and
stopped early where a live trial would have been stopped. The truth is the mean of all recorded trials, as in
`live_tuning.py`. Each grid has three trials of a spec; two grids together give six, on two machines. Recorded
trials of a spec are hours or days apart and live ones minutes: the machine's drift over an hour is noise
here, and common to all trials there. `within` has no bar: live searches have.
"""

import argparse
import math
import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import cache, partial
from multiprocessing import get_context
from typing import Any

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_name, "1")  # small matrices; the other cores have searches of their own

import numpy as np  # noqa: E402
import yaml  # noqa: E402
from rich.console import Console  # noqa: E402
from rich.progress import track  # noqa: E402
from rig.harness import ROOT, interval, report  # noqa: E402
from rig.searches import recorded_trials  # noqa: E402
from rig.searches.grid_truth import Truth, truth  # noqa: E402

from serving.resources.formats import quantity  # noqa: E402
from serving.resources.tuning.experiment import ProfilingExperimentSpec  # noqa: E402
from serving.resources.tuning.trial import Estimate, Reason, TrialSpec, TrialStatus, Window  # noqa: E402
from tuner import intervals, trial_record  # noqa: E402
from tuner.load.level_search import highest_load, results  # noqa: E402
from tuner.load.level_search.state import Finished, State  # noqa: E402
from tuner.objective import HOUR  # noqa: E402
from tuner.observation import problem_of  # noqa: E402
from tuner.search.decision_values import Confirm, Explore, Recommend  # noqa: E402
from tuner.search.next_decision import decide  # noqa: E402
from tuner.search.problem import Budget, Problem, TrialObservation  # noqa: E402
from tuner.settings import DEFAULTS, SearchSettings  # noqa: E402
from tuner.specs.space import Space  # noqa: E402

TRIALS = 19
"""One of the 20 trials of `live_tuning.py` measures the current spec, which is not in the space there."""
GIB = 2.0**30


class Grid:
    """The recorded trials, as an experiment observes them."""

    def __init__(self, recorded: Sequence[int]) -> None:
        manifest = yaml.safe_load((ROOT / "manifests/samples/tuning.yaml").read_text())
        self.spec = ProfilingExperimentSpec.model_validate(manifest["spec"])
        self.space = Space.of(self.spec)
        self.costs = np.array([self._cost(row) for row in range(self.space.size)])
        self._states: dict[tuple[int, int], State] = {}
        self.rounds = 0
        for trial in recorded:
            trials = recorded_trials.trials(recorded_trials.GRIDS[trial])
            self._states |= {
                (self.rounds + number, row): _state(windows) for (number, row), windows in trials.items()
            }
            self.rounds += 1 + max(number for number, _ in trials)

    def named(self, row: int) -> str:
        """Return the settings of a spec."""
        return " ".join(f"{setting.name}={setting.value}" for setting in self.space.settings(row))

    @property
    def problem(self) -> Problem:
        """Return the problem of the search."""
        return problem_of(self.spec, self.space, self.costs)

    def observe(
        self, row: int, number: int, *, below: float = 0.0, confirms: bool = False
    ) -> TrialObservation:
        """Return a recorded trial of a spec, stopped once its objective is certainly less than `below`."""
        ended, reason, seconds = self._ended(row, number, below)
        trial = {
            "metadata": {"name": f"recorded-{number}"},
            "spec": self._trial(row, "Confirm" if confirms else "Explore"),
            "status": TrialStatus(phase="Succeeded", reason=reason, result=ended, seconds=seconds).model_dump(
                by_alias=True, exclude_none=True
            ),
        }
        observation = trial_record.read(
            trial, self.space, self.spec.objective, self.spec.constraints
        ).observation
        assert observation is not None
        return observation

    def _ended(self, row: int, number: int, below: float) -> tuple[Window, Reason, float]:
        """Return result, reason and seconds of load; a stopped trial ends with the window that decides it."""
        state = replace(self._states[number, row], stop_below=below)
        for count in range(1, 1 + len(state.windows)):
            seen = replace(state, windows=state.windows[:count], planned=state.planned[:count])
            step = highest_load.next_step(seen) if below else None
            if isinstance(step, Finished) and step.reason == "CannotBeatBest":
                return step.result, step.reason, sum(seen.planned)
        return results.result(state), "Measured", sum(state.planned)

    def _trial(self, row: int, purpose: str) -> dict[str, Any]:
        spec = TrialSpec(
            experiment="grid",
            number=1,
            purpose=purpose,
            settings=list(self.space.settings(row)),
            template={},
            model_name="model",
            cost_per_hour=float(self.costs[row]),
            load=recorded_trials.LOAD,
        )
        return spec.model_dump(by_alias=True, exclude_none=True)

    def _cost(self, row: int) -> float:
        has = {
            setting.name: quantity.parse(setting.value)
            for setting in self.space.settings(row)
            if setting.category == "resource"
        }
        prices = self.spec.prices
        return float(has["cpu"]) * float(prices.cpu or 0) + float(has["memory"]) / GIB * float(
            prices.memory or 0
        )


def _state(windows: Sequence[recorded_trials.Window]) -> State:
    seen = [recorded_trials.measured(window) for window in windows]
    return results.state_of(recorded_trials.LOAD, [recorded_trials.LIMIT], seen, DEFAULTS.load)


@cache
def _grid(recorded: Sequence[int]) -> tuple[Grid, Truth]:
    grid = Grid(recorded)
    rounds = [[grid.observe(row, number) for row in range(grid.space.size)] for number in range(grid.rounds)]
    return grid, truth(rounds)


def play(
    recorded: Sequence[int], seed: int, settings: SearchSettings = DEFAULTS.search
) -> tuple[int | None, int, float]:
    """Return the recommended spec of a search, its number of trials, and its learned repeatability."""
    grid, _ = _grid(recorded)
    rng = np.random.default_rng([seed, 1])
    seen: list[TrialObservation] = []
    repeatability = 0.0
    while True:
        decision = decide(grid.problem, seen, (), Budget(TRIALS), settings=settings, seed=seed)
        repeatability = decision.repeatability
        if not isinstance(decision, Explore | Confirm):
            row = decision.index if isinstance(decision, Recommend) else None
            return row, len(seen), repeatability
        for row in decision.indices:
            confirms = isinstance(decision, Confirm)
            below = (
                0.0
                if confirms or decision.best is None or not decision.is_safe
                else _to_beat(seen, decision.best, repeatability) * float(grid.costs[row])
            )
            seen.append(grid.observe(row, int(rng.integers(grid.rounds)), below=below, confirms=confirms))


def _to_beat(seen: Sequence[TrialObservation], best: int, repeatability: float) -> float:
    """Return the lower bound of the best objective."""
    of_it = [trial for trial in seen if trial.index == best and trial.log_objective is not None]
    complete = [trial for trial in of_it if not trial.censored] or of_it
    known = [_estimate(trial.log_objective or 0.0, trial.noise) for trial in complete]
    return intervals.pooled(known, repeatability).low / HOUR


def _estimate(log: float, deviation: float) -> Estimate:
    half = intervals.Z95 * deviation
    return Estimate(value=math.exp(log), low=math.exp(log - half), high=math.exp(log + half))


def main() -> None:
    """Run the searches, and report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=200, help="searches, about a second each")
    parser.add_argument(
        "--grid", type=int, choices=recorded_trials.GRIDS, help="recorded one; all, if it is not given"
    )
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--quick", action="store_const", dest="seeds", const=10)
    options = parser.parse_args()
    console = Console(stderr=True, width=110)
    recorded = (options.grid,) if options.grid else tuple(recorded_trials.GRIDS)
    with ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn")) as pool:
        runs = list(
            track(
                pool.map(partial(play, recorded), range(options.seeds)),
                description="searches",
                total=options.seeds,
                console=console,
            )
        )
    grid, known = _grid(recorded)
    ratios = [known.ratio(row) for row, _, _ in runs]
    report(
        "live_replay",
        {
            "grids": recorded,
            "searches": options.seeds,
            "repeatability": round(known.deviation, 4),
            "intervalBegins": round(math.exp(-known.reach), 4),
            "within": interval([float(known.within(row)) for row, _, _ in runs], _mean),
            "ratio": interval(ratios, _mean),
            "p10": round(float(np.percentile(ratios, 10)), 3),
            "trials": round(_mean([float(count) for _, count, _ in runs]), 1),
            "bestSpecs": {
                grid.named(row): round(known.ratio(row), 3)
                for row in range(grid.space.size)
                if known.within(row)
            },
            "learnedRepeatability": [
                round(float(np.percentile([deviation for *_, deviation in runs], p)), 3) for p in (10, 50, 90)
            ],
        },
        [],
    )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


if __name__ == "__main__":
    main()

"""CPU time of one search decision: 100, 1,000 and 100,000 specs, 30 trials, one constraint, one core.

Processor time, so other load on the machine does not count; cold, and with eight earlier experiments of the
same space, the most that a search uses.
"""

import argparse
import os
import time
from collections.abc import Callable, Sequence
from functools import partial

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import itertools  # noqa: E402

import numpy as np  # noqa: E402
from rig.harness import Bar, Interval, at_most, interval, report  # noqa: E402

from tuner.search.decision_values import Explore  # noqa: E402
from tuner.search.next_decision import decide  # noqa: E402
from tuner.search.problem import Budget, Earlier, Problem, TrialObservation  # noqa: E402
from tuner.settings import SearchSettings  # noqa: E402

AXES = {100: (4, 5, 5), 1_000: (10, 10, 10), 100_000: (10, 10, 10, 10, 10)}
BARS = {1_000: 1.0, 100_000: 15.0}
"""Seconds: a decision on 100,000 specs must take less than half of a trial."""
TRIALS, EARLIER = 30, 8


def problem(size: int) -> Problem:
    """Return a space in which more of each resource increases throughput and latency."""
    ranks = np.array(list(itertools.product(*(range(axis) for axis in AXES[size]))), dtype=np.int64)
    axes = len(AXES[size])
    return Problem(
        coordinates=ranks.astype(np.float64),
        ranks=ranks,
        ordered=(True,) * axes,
        resource=(False,) * axes,
        log_cost=0.1 * ranks[:, 0].astype(np.float64),
        log_bounds=(0.0,),
    )


def trials(space: Problem, seed: int) -> list[TrialObservation]:
    """Return measurements of random specs."""
    rng = np.random.default_rng(seed)
    results = []
    for row in rng.choice(space.size, TRIALS, replace=False):
        total = float(space.coordinates[row].sum())
        objective, margin = np.log1p(total) + rng.normal(0, 0.02), 0.05 * total - 1 + rng.normal(0, 0.02)
        results.append(
            TrialObservation(
                int(row),
                log_objective=float(objective),
                noise=0.02,
                margins=(float(margin),),
                margin_noise=0.02,
            )
        )
    return results


def decide_once(space: Problem, seen: Sequence[TrialObservation], earlier: Sequence[Earlier]) -> None:
    """Decide, as in the middle of a search."""
    decision = decide(space, seen, (), Budget(1000), earlier, settings=SearchSettings(regret=0.0))
    assert isinstance(decision, Explore), decision


def timed(act: Callable[[], object], rounds: int) -> Interval:
    """Return processor seconds."""
    took = []
    for _ in range(rounds):
        began = time.process_time()
        act()
        took.append(time.process_time() - began)
    return interval(took)


def main(rounds: int) -> None:
    """Measure, and report."""
    results, held = {}, list[Bar]()
    for size in AXES:
        space = problem(size)
        seen = trials(space, 0)
        earlier = tuple(Earlier(f"e{i}", space, tuple(trials(space, i))) for i in range(1, EARLIER + 1))

        cold = timed(partial(decide_once, space, seen, ()), rounds)
        warm = timed(partial(decide_once, space, seen, earlier), max(1, rounds // 3))
        results[str(size)] = {"coldSeconds": cold, "warmSeconds": warm}
        if size in BARS:
            held.append(at_most(f"{size:,} specs, cold: processor seconds of a decision", cold, BARS[size]))
            held.append(at_most(f"{size:,} specs, warm: processor seconds of a decision", warm, BARS[size]))
    report("search_time", {"trials": TRIALS, "earlier": EARLIER, "specs": results}, held)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    main(3 if parser.parse_args().quick else 9)

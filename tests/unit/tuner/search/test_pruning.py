import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.reference.known_surfaces import grid
from tuner.search.problem import TrialObservation
from tuner.search.pruning import out_of_memory

SPACE = grid(range(3), range(4), range(3), resource=(True, False, True))


@given(st.sets(st.integers(0, SPACE.size - 1), max_size=4))
def test_exactly_specs_with_at_most_the_resources_are_pruned(failed):
    pruned = out_of_memory(SPACE, [TrialObservation(row, cause="memory") for row in failed])
    for row, (cpu, batch, memory) in enumerate(SPACE.ranks):
        dominated = any(
            cpu <= SPACE.ranks[f][0] and batch == SPACE.ranks[f][1] and memory <= SPACE.ranks[f][2]
            for f in failed
        )
        assert pruned[row] == dominated


def test_other_failures_and_successes_prune_nothing():
    seen = [
        TrialObservation(35, cause="crash"),
        TrialObservation(30, cause="timeout"),
        TrialObservation(20, log_objective=0.0),
    ]
    assert not np.any(out_of_memory(SPACE, seen))

"""What was to be missed, of the specs that the search could still have tried."""

from tests.reference.known_surfaces import grid
from tuner.report.convergence import regrets
from tuner.search.problem import Observation
from tuner.settings import DEFAULTS

SPACE = grid(range(4), range(2), resource=(True, False), log_bounds=(0.0,))


def good(row: int) -> Observation:
    return Observation(row, log_objective=0.0, noise=0.01, margins=(-1.0,), margin_noise=0.01)


def test_specs_with_less_memory_than_one_that_ran_out_of_it_are_not_missed():
    most = [row for row, (memory, _) in enumerate(SPACE.ranks) if memory == 3]
    dead = [row for row, (memory, _) in enumerate(SPACE.ranks) if memory == 2]
    seen = [*map(good, most), *(Observation(row, cause="memory") for row in dead)]
    found = regrets(SPACE, seen, DEFAULTS.search)
    assert found[len(most)] > 0
    assert found[len(seen)] == 0

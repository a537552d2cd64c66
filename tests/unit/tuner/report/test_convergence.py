"""The expected regret over the specs that the search could still try."""

from tests.reference.known_surfaces import grid
from tuner.report.convergence import regrets
from tuner.search.problem import Observation
from tuner.settings import DEFAULTS

SPACE = grid(range(4), range(2), resource=(True, False), log_bounds=(0.0,))


def good(row: int) -> Observation:
    return Observation(row, log_objective=0.0, noise=0.01, margins=(-1.0,), margin_noise=0.01)


def test_regret_excludes_specs_with_less_memory_than_one_that_ran_out_of_it():
    good_rows = [row for row, (memory, _) in enumerate(SPACE.ranks) if memory == 3]
    failed_rows = [row for row, (memory, _) in enumerate(SPACE.ranks) if memory == 2]
    observations = [*map(good, good_rows), *(Observation(row, cause="memory") for row in failed_rows)]
    by_count = regrets(SPACE, observations, DEFAULTS.search)
    assert by_count[len(good_rows)] > 0
    assert by_count[len(observations)] == 0

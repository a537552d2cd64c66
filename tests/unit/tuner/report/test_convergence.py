"""The expected regret over the specs that the search could still try."""

from dataclasses import replace

import numpy as np
import pytest

from tests.objects.tuning import measured_experiments
from tests.reference.known_surfaces import grid
from tuner.report import evidence
from tuner.report.convergence import regrets, search_data
from tuner.search.problem import TrialObservation
from tuner.settings import DEFAULTS

SPACE = grid(range(4), range(2), resource=(True, False), log_bounds=(0.0,))


def good(row: int) -> TrialObservation:
    return TrialObservation(row, log_objective=0.0, noise=0.01, margins=(-1.0,), margin_noise=0.01)


def test_regret_excludes_specs_with_less_memory_than_one_that_ran_out_of_it():
    good_rows = [row for row, (memory, _) in enumerate(SPACE.ranks) if memory == 3]
    failed_rows = [row for row, (memory, _) in enumerate(SPACE.ranks) if memory == 2]
    observations = [*map(good, good_rows), *(TrialObservation(row, cause="memory") for row in failed_rows)]
    by_count = regrets(SPACE, observations)
    assert by_count[len(good_rows)] > 0
    assert by_count[len(observations)] == 0


def test_model_of_the_report_expects_the_scaling_with_cost_as_the_search_does():
    read = evidence.read(*measured_experiments.story(), DEFAULTS)
    problem = search_data(read).problem
    costs = [
        measured_experiments.CPU * measured_experiments.CORES[settings["cpu"]]
        + measured_experiments.MEMORY * measured_experiments.GIB[settings["memory"]]
        for settings in map(
            measured_experiments.settings_of, map(read.space.settings, range(read.space.size))
        )
    ]
    assert np.exp(problem.log_cost) == pytest.approx(costs)
    without = [row for row in read.rows if row.spec.cost_per_hour <= 0]
    assert np.ptp(search_data(replace(read, rows=tuple(without))).problem.log_cost) == 0

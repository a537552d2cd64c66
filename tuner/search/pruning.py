"""Specs that need no trial, as a measured spec shows that they fail."""

from collections.abc import Iterable

import numpy as np

from tuner.search.problem import Problem, TrialObservation


def out_of_memory(problem: Problem, observations: Iterable[TrialObservation]) -> np.ndarray:
    """Return (n,) bool: specs with at most the resources of one that ran out of memory, and otherwise equal.

    Specs that differ in anything but resources are left to the model, which learns whether more threads take
    more memory.
    """
    resource = np.array(problem.resource)
    pruned = np.zeros(problem.size, dtype=bool)
    for seen in observations:
        if seen.cause == "memory":
            failed = problem.ranks[seen.index]
            less = problem.ranks <= failed
            same = problem.ranks == failed
            pruned |= np.where(resource, less, same).all(axis=1)
    return pruned

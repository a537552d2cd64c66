"""Which specs need no trial, because one that was measured says enough of them."""

from collections.abc import Iterable

import numpy as np

from tuner.search.problem import Observation, Problem


def out_of_memory(problem: Problem, observations: Iterable[Observation]) -> np.ndarray:
    """Return (n,) bool: which specs have at most the resources of one that ran out of memory, and are else the same.

    Nothing is said of specs that differ in anything but resources: whether more threads take more memory is for the model to learn.
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

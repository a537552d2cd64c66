"""The Pareto front: what nothing beats in both of two measures."""

from collections.abc import Sequence
from itertools import groupby


def efficient(points: Sequence[tuple[float, float]]) -> list[bool]:
    """Return for each point (both measures: less is better) whether no other is at most as great in both and less in one."""
    answer = [False] * len(points)
    best = float("inf")
    order = sorted(range(len(points)), key=lambda i: points[i])
    for _, column in groupby(order, key=lambda i: points[i][0]):
        members = list(column)
        least = points[members[0]][1]
        if least < best:
            for i in members:
                answer[i] = points[i][1] == least
            best = least
    return answer

"""The segments of a hash ring: their order, and their reassignment when backends are not ready."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from serving.planning.apportionment import apportion


class BackendSegment(NamedTuple):
    """A run of `size` units of the ring that belong to one backend."""

    backend: str
    size: int


def reassign_unready(segments: Sequence[BackendSegment], ready: set[str]) -> list[BackendSegment]:
    """Give the segments of backends that are not ready to the ready ones, in proportion to their weights.

    A unit that belongs to a ready backend keeps its place, so no other caller moves. Adjacent segments of one
    backend are joined. The result is empty if no ready backend has weight.
    """
    weights: dict[str, int] = {}
    for backend, size in segments:
        if backend in ready:
            weights[backend] = weights.get(backend, 0) + size
    total = sum(weights.values())
    result: list[BackendSegment] = []
    if not total:
        return result
    owed = dict.fromkeys(weights, 0)
    for backend, size in segments:
        parts = {backend: size} if backend in ready else _split(size, weights, total, owed)
        for owner, units in parts.items():
            if result and result[-1].backend == owner:
                result[-1] = BackendSegment(owner, result[-1].size + units)
            elif units:
                result.append(BackendSegment(owner, units))
    return result


def _split(size: int, weights: Mapping[str, int], total: int, owed: dict[str, int]) -> dict[str, int]:
    """Return the units of one segment that each ready backend gets.

    Rounding is carried to the next segment, so that the shares of the whole ring differ from the exact ones
    by about a unit, however many segments are split.

    Args:
        size: units of the segment.
        weights: units of each ready backend in the whole ring.
        total: their sum.
        owed: the units that each ready backend still has to get (below 0: has got too many) of the segments
            before, in 1/total of a unit; updated.
    """
    for owner, weight in weights.items():
        owed[owner] += size * weight
    parts = apportion({owner: max(0, amount) for owner, amount in owed.items()}, size)
    for owner, units in parts.items():
        owed[owner] -= total * units
    return parts


def add_unweighted(
    segments: Sequence[BackendSegment], backends: Sequence[str], *, keep_positions: bool
) -> list[BackendSegment]:
    """Add a segment of size 0 for each backend without weight.

    The order changes as rarely as possible, as Envoy's weights for one order are not valid for another: a
    changed order is a change of routes (`serving.router.envoy.weights`).

    Args:
        segments: the ring; if empty, nothing can serve, and the result is empty.
        backends: all backends, in the Route's order.
        keep_positions: keep each segment in its place on the ring, as callers are sticky. Otherwise the
            result has one segment for each backend, in the order of `backends`.
    """
    if not segments:
        return []
    units = dict.fromkeys(backends, 0)
    for backend, size in segments:
        units[backend] += size
    one_each = [BackendSegment(backend, size) for backend, size in units.items()]
    is_same_ring = [segment for segment in one_each if segment.size] == list(segments)
    if is_same_ring or not keep_positions:
        return one_each
    return [*segments, *(segment for segment in one_each if not segment.size)]

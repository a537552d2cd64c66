"""The segments of a hash ring: their order, and their reassignment when backends are not ready."""

from collections.abc import Mapping, Sequence

from serving.planning.apportionment import apportion

Sizes = list[tuple[str, int]]
"""Segments in the order of the ring: backend and size in units."""


def reassign_unready(segments: Sequence[tuple[str, int]], ready: set[str]) -> Sizes:
    """Give the segments of backends that are not ready to the ready ones, in proportion to their weights.

    A unit that belongs to a ready backend keeps its place, so no other caller moves. Adjacent segments of one
    backend are joined. The result is empty if no ready backend has weight.
    """
    weights: dict[str, int] = {}
    for backend, size in segments:
        if backend in ready:
            weights[backend] = weights.get(backend, 0) + size
    total = sum(weights.values())
    result: Sizes = []
    if not total:
        return result
    carried = dict.fromkeys(weights, 0)
    for backend, size in segments:
        parts = [(backend, size)] if backend in ready else _split(size, weights, total, carried)
        for owner, units in parts:
            if result and result[-1][0] == owner:
                result[-1] = (owner, result[-1][1] + units)
            elif units:
                result.append((owner, units))
    return result


def _split(size: int, weights: Mapping[str, int], total: int, carried: dict[str, int]) -> Sizes:
    """Apportion one segment.

    Rounding is carried to the next segment, in 1/total of a unit, so that the shares of the whole ring differ
    from the exact ones by about a unit, however many segments are split.
    """
    owed = {owner: size * weight + carried[owner] for owner, weight in weights.items()}
    parts = apportion({owner: max(0, amount) for owner, amount in owed.items()}, size)
    for owner, amount in owed.items():
        carried[owner] = amount - total * parts.get(owner, 0)
    return list(parts.items())


def add_unweighted(
    segments: Sequence[tuple[str, int]], backends: Sequence[str], *, keep_positions: bool
) -> Sizes:
    """Add a segment of size 0 for each backend without weight.

    The order changes as rarely as possible, as weights for one order are not valid for another.

    Args:
        segments: if empty, nothing can serve, and the result is empty.
        backends: all backends, in the Route's order.
        keep_positions: keep the segments in place, as callers are sticky; otherwise each backend gets one
            segment.
    """
    if not segments:
        return []
    units = dict.fromkeys(backends, 0)
    for backend, size in segments:
        units[backend] += size
    one_each = list(units.items())
    if not keep_positions or [(backend, size) for backend, size in one_each if size] == list(segments):
        return one_each
    return [*segments, *((backend, 0) for backend, size in one_each if not size)]

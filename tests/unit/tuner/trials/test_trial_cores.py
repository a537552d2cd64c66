"""Cores of a trial's replica and load generator."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.trials import cores
from tuner.trials.cores import Cores

LIMIT = st.none() | st.decimals(min_value="0.1", max_value="40", places=1)


@pytest.mark.parametrize(
    ("machine", "limit", "replica", "generator"),
    [
        ([0, 1], "0.5", (0,), (1,)),
        ([0, 1], "2", (0,), (1,)),
        ([0, 1, 2, 3], "1", (0,), (3,)),
        ([0, 1, 2, 3], "1.5", (0, 1), (2, 3)),
        ([0, 1, 2, 3], "4", (0, 1, 2), (3,)),
        ([0, 1, 2, 3], None, (0, 1, 2), (3,)),
        ([4, 6], "1", (4,), (6,)),
    ],
)
def test_replica_gets_the_first_cores_and_generator_the_last(
    machine: list[int], limit: str | None, replica: tuple[int, ...], generator: tuple[int, ...]
) -> None:
    allotted = cores.allot(machine, None if limit is None else Decimal(limit), [])
    assert allotted == Cores(replica, generator)


def test_single_core_is_shared_within_one_trial_only() -> None:
    allotted = cores.allot([0], Decimal(1), [])
    assert allotted is not None
    assert allotted.shared
    assert cores.allot([0], Decimal(1), [allotted]) is None


@given(st.integers(1, 32), st.lists(LIMIT, max_size=12))
def test_trials_share_no_core(count: int, limits: list[Decimal | None]) -> None:
    taken: list[Cores] = []
    for limit in limits:
        allotted = cores.allot(range(count), limit, taken)
        assert allotted is not None or taken, "the first trial always fits"
        if allotted is not None:
            assert allotted.replica
            assert allotted.generator
            assert allotted.shared == (count == 1)
            assert not allotted.used & {core for allotment in taken for core in allotment.used}
            taken.append(allotted)

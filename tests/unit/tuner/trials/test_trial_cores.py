from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.trials import cores
from tuner.trials.cores import Cores

LIMIT = st.none() | st.decimals(min_value="0.1", max_value="40", places=1)


@pytest.mark.parametrize(
    ("machine", "limit", "target", "generator"),
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
def test_the_replica_is_on_the_first_cores_and_the_generator_on_the_last(
    machine: list[int], limit: str | None, target: tuple[int, ...], generator: tuple[int, ...]
) -> None:
    found = cores.allot(machine, None if limit is None else Decimal(limit), [])
    assert found == Cores(target, generator)


def test_one_core_is_shared_and_by_one_trial_only() -> None:
    found = cores.allot([0], Decimal(1), [])
    assert found is not None
    assert found.shared
    assert cores.allot([0], Decimal(1), [found]) is None


@given(st.integers(1, 32), st.lists(LIMIT, max_size=12))
def test_no_two_trials_have_a_core_in_common(count: int, limits: list[Decimal | None]) -> None:
    taken: list[Cores] = []
    for limit in limits:
        found = cores.allot(range(count), limit, taken)
        assert found is not None or taken, "the first trial always fits"
        if found is not None:
            assert found.target
            assert found.generator
            assert found.shared == (count == 1)
            assert not found.used & {core for other in taken for core in other.used}
            taken.append(found)


def test_the_limit_of_a_pod_is_that_of_all_its_containers() -> None:
    limited = {"resources": {"limits": {"cpu": "500m"}}}
    assert cores.limit_of({"spec": {"containers": [limited, limited]}}) == Decimal(1)
    assert cores.limit_of({"spec": {"containers": [limited, {}]}}) is None

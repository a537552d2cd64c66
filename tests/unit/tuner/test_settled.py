"""Whether a recommendation is settled, by its expected regret and by its chance to meet the constraints."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.settled import SUFFICIENT_SHARE, UNSETTLED, Doubt, why_unsettled

SHARE = st.floats(0, 1)


@pytest.mark.parametrize(
    ("regret", "probability", "expected"),
    [
        (0.0, None, None),
        (UNSETTLED, 1 - UNSETTLED, None),
        (0.46, 1.0, (0.46, None)),
        (0.46, None, (0.46, None)),
        (0.01, 0.5, (None, 0.5)),
        (0.46, 0.5, (0.46, 0.5)),
    ],
)
def test_doubt_names_what_is_above_the_bound(regret, probability, expected):
    named = why_unsettled(trials=6, specs=96, regret=regret, probability=probability)
    assert (named and (named.regret, named.breaks)) == expected


def test_more_trials_are_a_fifth_of_the_specs_in_all_and_never_more_than_there_are():
    assert why_unsettled(trials=6, specs=96, regret=0.46, probability=None) == Doubt(6, 0.46, None, 14)
    assert why_unsettled(trials=40, specs=96, regret=0.46, probability=None).more == 4
    assert why_unsettled(trials=10, specs=12, regret=0.46, probability=None).more == 2
    assert why_unsettled(trials=14, specs=12, regret=0.0, probability=0.5).more == 0


@given(trials=st.integers(0, 200), specs=st.integers(1, 1000), regret=SHARE, probability=st.none() | SHARE)
def test_doubt_is_none_exactly_when_both_are_within_the_bound(trials, specs, regret, probability):
    named = why_unsettled(trials=trials, specs=specs, regret=regret, probability=probability)
    is_kept = probability is None or probability >= 1 - UNSETTLED
    assert (named is None) == (regret <= UNSETTLED and is_kept)
    if named is not None:
        assert named.more >= 0
        assert trials + named.more <= max(specs, trials)
        assert trials + named.more >= min(SUFFICIENT_SHARE * specs, specs)

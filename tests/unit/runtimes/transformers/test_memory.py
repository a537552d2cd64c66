"""How many sequences of how many tokens the memory holds."""

from hypothesis import given
from hypothesis import strategies as st

from tests.rig import optional_modules

optional_modules.torch()
memory = optional_modules.lazy("serving.runtimes.transformers.memory")
COUNTS = st.integers(1, 10_000)


@given(COUNTS, COUNTS, st.integers(2, 10_000_000))
def test_sequences_and_the_prompt_that_is_read_fit_into_the_memory(
    sequences: int, context: int, tokens: int
) -> None:
    rows, length = memory.shape(sequences, context, tokens)
    assert 1 <= rows <= sequences
    assert 1 <= length <= context or (rows, length) == (1, tokens // 2)
    assert (rows + 1) * length <= tokens


def test_all_wanted_sequences_have_the_whole_context_when_they_fit() -> None:
    assert memory.shape(64, 2048, 65 * 2048) == (64, 2048)


def test_there_are_fewer_sequences_when_the_memory_is_short() -> None:
    assert memory.shape(64, 2048, 10 * 2048) == (9, 2048)

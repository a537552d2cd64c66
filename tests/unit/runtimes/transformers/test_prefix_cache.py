"""Rows that hold the tokens of ended sequences."""

from __future__ import annotations

from array import array

from hypothesis import given, settings
from hypothesis import strategies as st

from serving.runtimes.transformers.prefix_cache import CachedPrefix, PrefixCache

LEAST_TOKENS = 8
BEGIN = tuple(range(LEAST_TOKENS))


def tokens(*more: int, begin: tuple[int, ...] = BEGIN) -> array[int]:
    return array("i", (*begin, *more))


def test_next_turn_of_a_chat_continues_where_the_last_one_ended() -> None:
    prefixes = PrefixCache(4, LEAST_TOKENS)
    row = prefixes.add(tokens(1, 2, 3), first_free=1)
    assert row == 3
    assert prefixes.longest(tokens(1, 2, 3, 4, 5)) == CachedPrefix(row, LEAST_TOKENS + 3)


def test_last_token_of_a_prompt_is_read_when_the_whole_prompt_is_held() -> None:
    prefixes = PrefixCache(4, LEAST_TOKENS)
    prefixes.add(tokens(1, 2, 3), first_free=1)
    assert prefixes.longest(tokens(1, 2)) == CachedPrefix(3, LEAST_TOKENS + 1)


def test_short_prefix_is_not_used() -> None:
    prefixes = PrefixCache(4, LEAST_TOKENS)
    assert prefixes.add(tokens()[1:], first_free=1) is None
    prefixes.add(tokens(1), first_free=1)
    assert prefixes.longest(tokens()) is None
    assert prefixes.longest(tokens(0, begin=(7, *BEGIN[1:]))) is None


def test_later_turn_replaces_the_earlier_one() -> None:
    prefixes = PrefixCache(3, LEAST_TOKENS)
    prefixes.add(tokens(1), first_free=1)
    assert prefixes.add(tokens(1, 2), first_free=1) == 2
    assert prefixes.add(tokens(9), first_free=1) == 1, "the row of the earlier turn is not free"


def test_least_recently_used_tokens_give_way_when_no_row_is_free() -> None:
    prefixes = PrefixCache(3, LEAST_TOKENS)
    first, second, third = (tokens(begin=(chat,) * LEAST_TOKENS) for chat in (1, 2, 3))
    rows = [prefixes.add(chat, first_free=1) for chat in (first, second)]
    next_turn = first + array("i", [0])
    assert prefixes.longest(next_turn) == CachedPrefix(rows[0], LEAST_TOKENS)
    assert prefixes.add(third, first_free=1) == rows[1]
    assert prefixes.longest(second + array("i", [0])) is None
    assert prefixes.longest(next_turn) == CachedPrefix(rows[0], LEAST_TOKENS)


def test_nothing_is_held_without_a_free_row() -> None:
    assert PrefixCache(2, LEAST_TOKENS).add(tokens(1), first_free=2) is None
    assert PrefixCache(0, LEAST_TOKENS).add(tokens(1), first_free=1) is None


@settings(max_examples=200)
@given(st.data())
def test_a_prefix_is_always_what_its_row_holds(data: st.DataObject) -> None:
    rows, batch = data.draw(st.integers(1, 6)), 0
    prefixes = PrefixCache(rows, LEAST_TOKENS)
    contents: dict[int, array[int]] = {}
    texts = st.lists(st.integers(0, 1), max_size=4).map(lambda more: tokens(*more))
    for _ in range(data.draw(st.integers(0, 25))):
        match data.draw(st.sampled_from(("joins", "ends", "begins"))):
            case "joins" if batch < rows:
                prefixes.take([batch])
                contents.pop(batch, None)
                batch += 1
            case "ends" if batch:
                text = data.draw(texts)
                row = prefixes.add(text, first_free=batch)
                batch -= 1
                if row is not None:
                    assert batch < row < rows
                    contents[row] = text
            case "begins":
                prompt = data.draw(texts)
                prefix = prefixes.longest(prompt)
                if prefix is not None:
                    assert LEAST_TOKENS <= prefix.length < len(prompt)
                    assert contents[prefix.row][: prefix.length] == prompt[: prefix.length]

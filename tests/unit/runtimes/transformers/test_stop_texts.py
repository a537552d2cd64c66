"""A stop text ends a generation wherever the parts are cut."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from serving.runtimes.transformers.stop_texts import StopTexts


def cut(text: str, places: list[int]) -> list[str]:
    edges = [0, *sorted(place % (len(text) + 1) for place in places), len(text)]
    return [text[start:end] for start, end in itertools.pairwise(edges)]


@given(
    st.text("ab.", max_size=20),
    st.lists(st.text("ab.", min_size=1, max_size=4), max_size=3),
    st.lists(st.integers(0, 99)),
)
def test_text_before_the_first_stop_is_delivered_however_it_is_cut(
    text: str, stops: list[str], places: list[int]
) -> None:
    places_of_stops = [at for stop in stops if (at := text.find(stop)) >= 0]
    matcher = StopTexts(stops)
    delivered, stopped = "", False
    for part in cut(text, places):
        certain, stopped = matcher.add(part)
        delivered += certain
        if stopped:
            break
    if not stopped:
        delivered += matcher.rest()
    assert stopped == bool(places_of_stops)
    if not places_of_stops:
        assert delivered == text
    else:
        assert any(text[len(delivered) :].startswith(stop) for stop in stops)
        assert not any(stop in delivered for stop in stops)


def test_only_a_possible_beginning_is_held_back() -> None:
    matcher = StopTexts(["END"])
    assert matcher.add("the E") == ("the ", False)
    assert matcher.add("N") == ("", False)
    assert matcher.add("ough") == ("ENough", False)

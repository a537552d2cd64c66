"""Drawing: scales, ticks, and escaping."""

import math
from xml.etree import ElementTree as ET

from hypothesis import assume, given
from hypothesis import strategies as st

from serving.report_pages import svg
from serving.report_pages.svg import AxisScale

POSITIVE = st.floats(1e-6, 1e9)
TEXT = st.text(st.characters(exclude_categories=["Cc", "Cs"], exclude_characters="\ufffe\uffff"))


@given(st.lists(POSITIVE, min_size=1, max_size=6), st.booleans())
def test_a_scale_holds_all_its_values_and_keeps_their_order(values: list[float], log: bool):  # noqa: FBT001
    scale = AxisScale.around(values, 10, 110, log=log)
    places = [scale.at(value) for value in sorted(values)]
    assert places == sorted(places)
    assert all(10 <= place <= 110 for place in places)


@given(POSITIVE, POSITIVE, st.booleans())
def test_ticks_are_a_few_and_inside(a: float, b: float, log: bool):  # noqa: FBT001
    assume(max(a, b) / min(a, b) > 1.01)
    scale = AxisScale.around([a, b], 0, 1, log=log)
    ticks = scale.ticks()
    assert 1 <= len(ticks) <= 17
    assert all(scale.low * (1 - 1e-9) <= tick <= scale.high * (1 + 1e-9) for tick in ticks)


def test_ticks_are_round():
    assert AxisScale(0.0, 10.0, 0, 1).ticks() == [0, 2, 4, 6, 8, 10]
    assert AxisScale(0.9, 110.0, 0, 1, log=True).ticks() == [1, 10, 100]
    assert [round(tick, 9) for tick in AxisScale(0.8, 12.0, 0, 1, log=True).ticks()] == [1, 2, 5, 10]


def test_values_that_cannot_be_drawn_are_left_out_of_a_scale():
    scale = AxisScale.around([math.nan, math.inf, -1.0, 2.0], 0, 1, log=True)
    assert scale.low < 2 < scale.high


@given(TEXT, TEXT)
def test_any_text_is_escaped(words: str, tip: str):
    drawn = svg.picture(words, svg.text(1, 2, words, "tick"), svg.dot(1, 2, "mark", tip))
    root = ET.fromstring(drawn)
    assert [child.tag for child in root] == ["text", "circle"]
    assert root.attrib["aria-label"].split() == words.split()
    assert (root[0].text or "") == words
    assert root[1].attrib["data-tip"].split() == tip.split()

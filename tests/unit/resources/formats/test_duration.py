import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.resources.formats import duration
from serving.resources.tuning.experiment import ProfilingExperimentSpec

PATTERN = ProfilingExperimentSpec.model_json_schema()["properties"]["serviceProgressDeadline"]["pattern"]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("250us", 0.00025), ("2ms", 0.002), ("1.5s", 1.5), ("3m", 180), ("2h", 7200), ("0ms", 0)],
)
def test_a_duration_is_a_number_of_its_unit(text: str, seconds: float) -> None:
    assert duration.seconds(text) == pytest.approx(seconds)


@given(st.from_regex(PATTERN, fullmatch=True))
def test_every_duration_of_the_schema_pattern_is_parsed(text: str) -> None:
    assert duration.seconds(text) >= 0


@given(
    st.text(max_size=8) | st.sampled_from(["", "1", "ms", "1 s", "-1s", "1.s", ".5s", "1d", "1e3s", "1s\n"])
)
def test_text_outside_the_schema_pattern_is_refused(text: str) -> None:
    if re.search(PATTERN, text) is None or text.endswith("\n"):
        with pytest.raises(ValueError, match="is not a duration such as"):
            duration.seconds(text)

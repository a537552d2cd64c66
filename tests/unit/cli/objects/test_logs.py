import pytest

from serving import errors
from serving.cli.objects.logs import seconds


@pytest.mark.parametrize(("text", "expected"), [("90s", 90), ("2m", 120), ("3h", 10800), ("1h30m", 5400)])
def test_durations_have_the_form_of_kubectl(text: str, expected: int) -> None:
    assert seconds(text) == expected


@pytest.mark.parametrize("text", ["", "5", "m", "1d", "-1s", "1s2m"])
def test_an_invalid_duration_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(errors.UserError, match="1h30m"):
        seconds(text)

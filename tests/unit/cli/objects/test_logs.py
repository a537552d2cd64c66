import io
import sys

import pytest

from serving import errors
from serving.cli.objects import logs
from serving.cli.objects.logs import seconds


@pytest.mark.parametrize(("text", "expected"), [("90s", 90), ("2m", 120), ("3h", 10800), ("1h30m", 5400)])
def test_durations_have_the_form_of_kubectl(text: str, expected: int) -> None:
    assert seconds(text) == expected


@pytest.mark.parametrize("text", ["", "5", "m", "1d", "-1s", "1s2m"])
def test_an_invalid_duration_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(errors.UserError, match="1h30m"):
        seconds(text)


OBEYED = b"\x1b]52;c;ZXZpbA==\x07a\tb\rc\xc2\x9b2J \x9b\x00\x7f\xc3\xa9\xf0\x9f\x8c\x8d\xe2\x80\xae\r"
SHOWN = "\\x1b]52;c;ZXZpbA==\\x07a\tb\\x0dc\\x9b2J \\x9b\\x00\\x7fé🌍\\u202e\r".encode()


@pytest.mark.parametrize(("is_terminal", "written"), [(True, SHOWN), (False, OBEYED)])
def test_control_characters_are_escaped_when_the_output_is_a_terminal(
    monkeypatch: pytest.MonkeyPatch, *, is_terminal: bool, written: bytes
) -> None:
    output = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    monkeypatch.setattr(output, "isatty", lambda: is_terminal)
    monkeypatch.setattr(sys, "stdout", output)
    logs._write("[p] ", OBEYED)
    assert output.buffer.getvalue() == b"[p] " + written + b"\n"  # type: ignore[attr-defined]

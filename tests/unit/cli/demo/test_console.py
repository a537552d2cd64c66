import io
import re

import pytest
from rich.console import Console

from serving import clock
from serving.cli.demo.console import Story


@pytest.fixture(autouse=True)
def stopped_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "monotonic", lambda: 100.0)


def output_of_a_story(*, terminal: bool) -> tuple[str, Story]:
    sink = io.StringIO()
    with Story(Console(file=sink, force_terminal=terminal, width=40)) as story:
        story.step("First [of] two")
        story.doing("waiting")
        story.show("A" * 60 + "\n[b] 1:2")
        story.check("this holds", holds=True)
        story.check("this does not", holds=False)
    return sink.getvalue(), story


def test_piped_lines_are_plain_and_never_wrapped() -> None:
    text, _ = output_of_a_story(terminal=False)
    assert "\x1b" not in text
    assert "waiting" not in text
    assert text.splitlines()[1:] == [
        "[  0.0 s] First [of] two",
        " " * 10 + "A" * 60,
        " " * 10 + "[b] 1:2",
        " " * 10 + "ok   this holds",
        " " * 10 + "FAIL this does not",
    ]


def test_a_terminal_shows_the_same_lines_and_a_spinner() -> None:
    plain, _ = output_of_a_story(terminal=False)
    text, _ = output_of_a_story(terminal=True)
    assert "waiting" in text
    shown = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text).replace("\r", "\n").splitlines()
    for line in plain.splitlines():
        assert line in shown


def test_a_failed_check_is_remembered() -> None:
    assert output_of_a_story(terminal=False)[1].failed == ["this does not"]

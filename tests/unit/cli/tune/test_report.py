"""The layout of the sentences of `slipway tune report`."""

from serving.cli.tune import report

SECTIONS = {
    "headline": ["Run cpu 2."],
    **dict.fromkeys(("cautions", "current", "alternative", "runnerUp", "impossible", "details"), ()),
    **dict.fromkeys(("prices", "bounds", "fronts", "shares", "model", "question", "trials"), ()),
    "spent": ["4\u00a0trials were made, for a space of 96.", "They took 3 min."],
}


def test_each_sentence_has_a_line_without_a_terminal() -> None:
    assert report.plain(SECTIONS) == (
        "Run cpu 2.\n\nCost of the search:\n  4 trials were made, for a space of 96.\n  They took 3 min.\n"
    )


def test_escape_sequences_of_a_replicas_error_are_shown_as_text() -> None:
    noted = {**SECTIONS, "cautions": ["Trial 1: RequestsFailed: status 500: \x1b]0;mine\x07\u202e"]}
    for width in (None, 80):
        assert "status 500: \\x1b]0;mine\\x07\\u202e" in report.plain(noted, width)


def test_sentences_are_wrapped_and_indented_on_a_terminal() -> None:
    assert report.plain(SECTIONS, 24).splitlines()[3:6] == [
        "  4 trials were made,",
        "    for a space of 96.",
        "  They took 3 min.",
    ]

"""Values of headers that a peer may have written."""

from datetime import UTC, datetime

import pytest

from serving.system.network import http_headers

NOW = datetime(2026, 10, 21, 7, 28, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0.0),
        ("7", 7.0),
        ("Wed, 21 Oct 2026 07:29:30 GMT", 90.0),
        ("Sat, 01 Jan 2000 00:00:00 GMT", 0.0),
        ("Sat, 01 Jan 2050 00:00:00 GMT", 3600.0),
        ("9" * 18, 3600.0),
        ("9" * 5000, None),
        (f"Mon, 01 Jan {'9' * 20} 00:00:00 GMT", None),
        ("-1", None),
        ("soon", None),
        ("", None),
    ],
)
def test_retry_after_is_a_number_or_a_date_when_it_is_readable(text: str, seconds: float | None) -> None:
    assert http_headers.retry_after({"Retry-After": text}, NOW) == seconds


def test_retry_after_is_none_when_there_is_no_such_header() -> None:
    assert http_headers.retry_after({}, NOW) is None


def test_a_number_is_none_when_the_text_has_another_character() -> None:
    assert http_headers.number("42") == 42
    assert [http_headers.number(text) for text in ("", "-1", "4 2", "²")] == [None] * 4

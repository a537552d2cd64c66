import pytest
import typer

from serving.cli.output import formats


@pytest.mark.parametrize("name", ["table", "wide", "json", "yaml", "name"])
def test_a_plain_format_is_its_name(name: str) -> None:
    assert formats.parse(name) == formats.OutputFormat(name)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("xml", "one of table, wide, json"),
        ("json=x", "one of table"),
        ("jsonpath", "one of table"),
        ("jsonpath=", "one of table"),
        ("jsonpath={.a", "not closed"),
        ("custom-columns=NAME", "is not HEADER:PATH"),
    ],
)
def test_a_format_that_cannot_be_used_is_refused_with_its_rule(text: str, message: str) -> None:
    with pytest.raises(typer.BadParameter, match=message):
        formats.parse(text)

"""Plain scalars of YAML, as Kubernetes reads them."""

import math
from typing import Any

import pytest
import yaml

from serving.resources.formats import manifest_yaml


def test_tag_of_a_number_on_a_word_is_an_error_that_names_the_word() -> None:
    with pytest.raises(yaml.YAMLError, match="'many' is not a number"):
        yaml.load("a: !!int many", manifest_yaml.Loader)


def test_tag_of_a_boolean_on_another_word_is_an_error_that_names_the_word() -> None:
    assert yaml.load("[!!bool y, !!bool off]", manifest_yaml.Loader) == [True, False]
    with pytest.raises(yaml.YAMLError, match="'many' is not a boolean"):
        yaml.load("a: !!bool many", manifest_yaml.Loader)


@pytest.mark.parametrize("text", ["1e400", "9" * 5000])
def test_tag_of_a_number_is_an_error_when_no_float_can_be_the_number(text: str) -> None:
    with pytest.raises(yaml.YAMLError, match=f"'{text}' is not a number"):
        yaml.load(f"a: !!float {text}", manifest_yaml.Loader)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("12:30:45", "12:30:45"),
        ("-1:30", "-1:30"),
        ("190:20:30.15", "190:20:30.15"),
        ("22:22", "22:22"),
        ("2026-01-02", "2026-01-02"),
        ("2026-01-02T03:04:05Z", "2026-01-02T03:04:05Z"),
        ("12", 12),
        ("-0x1F", -31),
        ("1.5", 1.5),
        ("0o17", 15),
        ("017", 15),
        ("09", 9),
        ("0b101", 5),
        ("1_000", 1000),
        ("1.5e+3", 1500),
        ("1e3", 1000),
        ("2.0", 2),
        ("1e-3", 0.001),
        ("1e21", 1e21),
        ("18446744073709551615", 2**64 - 1),
        ("18446744073709551616", 2**64),
        ("-9223372036854775808", -(2**63)),
        ("-9223372036854775809", -(2**63)),  # the nearest float
        ("1" + "0" * 30, 1e30),
        ("0" * 30 + "1", 1),
        ("0xfffffffffffffffff", "0xfffffffffffffffff"),
        ("1e400", "1e400"),
        ("-1e400", "-1e400"),
        ("9" * 5000, "9" * 5000),
        (".inf", math.inf),
        ("-.INF", -math.inf),
        (".iNf", ".iNf"),
        ("1e", "1e"),
        ("0x", "0x"),
        ("1.2.3", "1.2.3"),
        ("--", "--"),
        (".5", 0.5),
        ("yes", True),
        ("y", True),
        ("Y", True),
        ("n", False),
        ("N", False),
        ("yn", "yn"),
        ("=", "="),
        ("~", None),
    ],
)
def test_plain_scalar_is_read_as_kubernetes_reads_it(text: str, value: Any) -> None:
    loaded = yaml.load(f"a: {text}", manifest_yaml.Loader)
    assert loaded == {"a": value}
    assert type(loaded["a"]) is type(value)


def test_strings_are_written_so_that_they_are_read_as_strings() -> None:
    words = ["y", "N", "yes", "1e3", "0o17", "09", "12:30:45", "2026-01-02", "=", "null", "plain"]
    text = yaml.dump(
        {"y": words, "numbers": [1, 2.0, 1e3, 1e22, 0.5, True, None]}, Dumper=manifest_yaml.Dumper
    )
    read = yaml.load(text, manifest_yaml.Loader)
    assert read == {"y": words, "numbers": [1, 2, 1000, 1e22, 0.5, True, None]}
    assert "!!" not in text
    assert "- plain\n" in text

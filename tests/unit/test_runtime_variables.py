"""The settings of a model server as variables of its container."""

from dataclasses import replace

import pytest

from serving import errors, runtime_variables
from serving.settings import RuntimeSettings


def test_written_variables_are_read_back() -> None:
    settings = replace(RuntimeSettings(), inline_seconds=0.5, waiting=7, prefix_cache=False)
    assert runtime_variables.write(settings) == {
        "SLIPWAY_RUNTIMES__INLINE_SECONDS": "0.5",
        "SLIPWAY_RUNTIMES__PREFIX_CACHE": "false",
        "SLIPWAY_RUNTIMES__WAITING": "7",
    }
    assert runtime_variables.read(runtime_variables.write(settings)) == settings


def test_defaults_need_no_variable() -> None:
    assert runtime_variables.write(RuntimeSettings()) == {}
    assert runtime_variables.read({"PORT": "1"}) == RuntimeSettings()


@pytest.mark.parametrize(
    ("variable", "text", "message"),
    [
        ("SLIPWAY_RUNTIMES__WAITING", "1.5", "must be an integer from 1 to 1000000000"),
        ("SLIPWAY_RUNTIMES__WAITING", "0", "not '0'"),
        ("SLIPWAY_RUNTIMES__GRACE_SECONDS", "nan", "must be a number from 0"),
        ("SLIPWAY_RUNTIMES__GRACE_SECONDS", "", "not ''"),
        ("SLIPWAY_RUNTIMES__PREFIX_CACHE", "0", "must be true or false, not '0'"),
        ("SLIPWAY_RUNTIMES__QUUX", "1", "unknown setting"),
    ],
)
def test_an_invalid_variable_is_refused_with_name_rule_and_value(
    variable: str, text: str, message: str
) -> None:
    with pytest.raises(errors.UserError) as refusal:
        runtime_variables.read({variable: text})
    assert str(refusal.value).startswith(f"{variable}: ")
    assert message in str(refusal.value)

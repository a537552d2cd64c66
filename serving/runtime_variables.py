"""The settings of a model server as environment variables of its container, `SLIPWAY_RUNTIMES__NAME`. Pure.

The node agent writes the variables, and the model server reads them without a validation library, whose
import would slow each start.
"""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, get_type_hints

from serving import errors
from serving.settings import RuntimeSettings
from serving.units import Quantity

PREFIX = "SLIPWAY_RUNTIMES__"


def write(settings: RuntimeSettings) -> dict[str, str]:
    """Return the variables of the settings that are not defaults."""
    return {
        PREFIX + setting.name.upper(): str(value).lower()
        for setting in fields(settings)
        if (value := getattr(settings, setting.name)) != setting.default
    }


def read(environment: Mapping[str, str]) -> RuntimeSettings:
    """Return the settings in these variables, with defaults for the others.

    Raises:
        errors.UserError: an unknown setting, or a value that is not of its type or not within its bounds.
    """
    texts = {name: text for name, text in environment.items() if name.startswith(PREFIX)}
    if not texts:
        return RuntimeSettings()
    hints = get_type_hints(RuntimeSettings, include_extras=True)
    values = {}
    for variable, text in texts.items():
        name = variable.removeprefix(PREFIX).lower()
        if name not in hints or variable != variable.upper():
            raise errors.UserError(f"{variable}: unknown setting; see `slipway config explain runtimes`")
        parse = _switch if hints[name] is bool else _number
        values[name] = parse(variable, text, hints[name])
    return RuntimeSettings(**values)


def _switch(variable: str, text: str, _: Any) -> bool:
    if text not in ("true", "false"):
        raise errors.UserError(f"{variable}: must be true or false, not {text!r}")
    return text == "true"


def _number(variable: str, text: str, hint: Any) -> Any:
    """Return the value of a variable.

    Args:
        variable: its name, for the message of an error.
        text: its text.
        hint: the type of the setting: `Annotated[int or float, Quantity(...)]`.

    Raises:
        errors.UserError: not a number within the bounds of the quantity.
    """
    number_type = hint.__origin__
    (quantity,) = (data for data in hint.__metadata__ if isinstance(data, Quantity))
    try:
        value = number_type(text)
    except ValueError:
        value = None
    if value is None or not quantity.least <= value <= quantity.most:
        kind = "an integer" if number_type is int else "a number"
        rule = f"{kind} from {quantity.least:.10g} to {quantity.most:.10g} ({quantity.unit})"
        raise errors.UserError(f"{variable}: must be {rule}, not {text!r}")
    return value

"""The sections of the configuration. Imports no validation library, as every component starts with it."""

from collections.abc import Iterator
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from typing import Any

from autoscaler.settings import AutoscalerSettings
from serving.settings import Settings
from tuner.settings import TunerSettings

PREFIX = "SLIPWAY_"
SEPARATOR = "__"
"""Between sections and names in an environment variable: `SLIPWAY_GATEWAY__PORT`."""


@dataclass(frozen=True)
class Configuration(Settings):
    """Every setting of an installation."""

    autoscaler: AutoscalerSettings = field(default_factory=AutoscalerSettings)
    tuner: TunerSettings = field(default_factory=TunerSettings)


def section_of(factory: Any) -> type[Any] | None:
    """Return the section that a field's default factory makes; None for a setting."""
    return factory if factory is not MISSING and isinstance(factory, type) and is_dataclass(factory) else None


def paths(section: type[Any] = Configuration, prefix: str = "") -> Iterator[str]:
    """Yield the paths of all settings, such as `gateway.port`, in the order of their sections."""
    for setting in fields(section):
        if (inner := section_of(setting.default_factory)) is not None:
            yield from paths(inner, f"{prefix}{setting.name}.")
        else:
            yield prefix + setting.name


def variable_of(path: str) -> str:
    """Return the environment variable of a setting."""
    return PREFIX + path.replace(".", SEPARATOR).upper()

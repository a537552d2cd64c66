"""The configuration that `slipway up` has validated, as a file for the components that it starts.

A component that restarts reads this snapshot, not the configuration file, which may have been edited since.
"""

from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import orjson

from serving.cli.config.schema import Configuration, section_of
from serving.system import atomic_file


def write(file: Path, configuration: Configuration) -> None:
    """Replace the snapshot."""
    file.parent.mkdir(parents=True, exist_ok=True)
    atomic_file.replace(file, orjson.dumps(asdict(configuration)))


def read(file: Path) -> Configuration:
    """Return the snapshot, which was validated when it was written.

    Raises:
        FileNotFoundError: there is no snapshot.
    """
    configuration: Configuration = _section(Configuration, orjson.loads(file.read_bytes()))
    return configuration


def _section(section: type[Any], values: dict[str, Any]) -> Any:
    """Return a section with these values.

    Snapshots of other releases may have unknown settings, which are ignored, and lack some, which have their
    defaults.
    """
    settings = {}
    for field in fields(section):
        if field.name in values:
            inner = section_of(field.default_factory)
            settings[field.name] = (
                values[field.name] if inner is None else _section(inner, values[field.name])
            )
    return section(**settings)

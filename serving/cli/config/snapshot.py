"""The configuration that `up` has validated, for the components that it starts: a component that restarts must not
meet a file that was edited, or broken, in the meantime.
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
    """Return the snapshot, which needs no validation.

    Raises:
        FileNotFoundError: there is none.
    """
    configuration: Configuration = _section(Configuration, orjson.loads(file.read_bytes()))
    return configuration


def _section(section: type[Any], values: dict[str, Any]) -> Any:
    """Return a section of these values; a setting that the snapshot of another release lacks has its default."""
    known = {}
    for each in fields(section):
        if each.name in values:
            inner = section_of(each.default_factory)
            known[each.name] = values[each.name] if inner is None else _section(inner, values[each.name])
    return section(**known)

"""The configuration that `slipway up` has validated, as a file for the components that it starts.

A component that restarts reads this snapshot, not the configuration file, which may have been edited since.
"""

import contextlib
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import orjson

from serving import errors
from serving.cli.config.schema import Configuration, section_of
from serving.data_dir import DataDir
from serving.system.files import run_files


def write(file: Path, configuration: Configuration) -> None:
    """Write the snapshot; a write error is ignored where the file has this configuration already.

    Raises:
        errors.UserError: the file cannot be written, and components would read another configuration.
    """
    try:
        run_files.ensure(file, orjson.dumps(asdict(configuration)))
    except OSError as error:
        raise errors.UserError(
            f"{file} cannot be written: {error.strerror}; components need it to start"
        ) from error


def read(file: Path) -> Configuration:
    """Return the snapshot, which was validated when it was written.

    Raises:
        FileNotFoundError: there is no snapshot.
    """
    configuration: Configuration = _section(Configuration, orjson.loads(file.read_bytes()))
    return configuration


def in_effect(data_dir: DataDir, file: Path | None = None) -> Configuration:
    """Return the configuration of `file`, else of the latest `up`, else of the data directory.

    Raises:
        errors.UserError: there is no snapshot, or `file` is given, and `configuration.load` refuses the file.
    """
    if file is None:
        with contextlib.suppress(FileNotFoundError):
            return read(data_dir.configuration)
    from serving.cli.config.configuration import load  # noqa: PLC0415 pydantic, not needed below `up`

    return load(data_dir, file).configuration


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

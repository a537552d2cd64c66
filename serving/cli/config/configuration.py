"""Reads the configuration. In rising order of precedence: defaults, configuration file, environment, options.

Every value is validated before anything starts; all errors of a file are reported at once, with path, rule
and value.
"""

import difflib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from pydantic import TypeAdapter, ValidationError

from serving import errors
from serving.cli.config.rules import broken_rules
from serving.cli.config.schema import PREFIX, SEPARATOR, Configuration, paths
from serving.data_dir import DataDir

Values = dict[str, Any]
"""Settings that have a value, nested by section, as in the file."""

ALIASES = {"SLIPWAY_PROMETHEUS": "controllers.prometheus"}
"""Settings that also have a variable with a short name."""
_MAX_CHARACTERS = 1_000_000
"""Largest configuration file, far above a file with every setting."""


@dataclass(frozen=True)
class Resolved:
    """A validated configuration and where its values come from."""

    configuration: Configuration
    values: Values
    """Values that are set, as given, nested by section."""
    sources: Mapping[str, str]
    """File, variable or option of each value that is set, by path such as `gateway.port`."""


def load(
    data_dir: DataDir,
    file: Path | None = None,
    options: Mapping[str, tuple[str, Any]] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Resolved:
    """Return the configuration of a data directory.

    Args:
        data_dir: its `config.yaml` is read if `file` is None; it need not exist.
        file: the configuration file; it must exist.
        options: values of the command line by path, each with the name of its option.
        environment: variables; None for those of this process.

    Raises:
        errors.UserError: the file cannot be read, a setting is unknown or a value breaks a rule; the message
            has one line for each error.
    """
    values: Values = {}
    sources: dict[str, str] = {}
    path = data_dir.config if file is None else file
    for key, value in _flat(_read(path, required=file is not None)):
        _put(values, sources, key, value, str(path))
    for variable, key, text in _variables(os.environ if environment is None else environment):
        _put(values, sources, key, text, variable)
    for key, (option, value) in (options or {}).items():
        _put(values, sources, key, value, option)
    return Resolved(_validated(values, sources), values, sources)


def _read(file: Path, *, required: bool) -> Any:
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        if required:
            raise errors.UserError(f"{file}: no such file") from None
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise errors.UserError(f"{file}: cannot be read: {error}") from error
    if len(text) > _MAX_CHARACTERS:
        raise errors.UserError(
            f"{file}: {len(text)} characters; a configuration has at most {_MAX_CHARACTERS}"
        )
    try:
        content = yaml.load(text, Loader=_StrictLoader)  # noqa: S506 derived from SafeLoader
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise errors.UserError(f"{file}: not YAML: {error}") from error
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise errors.UserError(
            f"{file}: must be a mapping of sections, such as `gateway:`, not {_shown(content)}"
        )
    return content


class _StrictLoader(yaml.SafeLoader):
    """Refuses duplicate keys, of which PyYAML would keep the last value, and aliases."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        keys = [str(getattr(key, "value", "")) for key, _ in node.value]
        if duplicates := sorted({key for key in keys if keys.count(key) > 1}):
            message = f"duplicate key {duplicates[0]}"
            raise yaml.constructor.ConstructorError(None, None, message, node.start_mark)
        return super().construct_mapping(node, deep)

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.events.AliasEvent):
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise yaml.constructor.ConstructorError(None, None, "aliases are not supported", mark)
        return super().compose_node(parent, index)


def _flat(content: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield path and value of each setting of the file.

    A section without a value, such as `gateway:` or `gateway: {}`, is skipped. An unknown section, and a
    section with another value than a mapping, is yielded as one setting, so that validation reports it.
    """
    for name, value in content.items():
        path = f"{prefix}{name}"
        is_section = path in _sections()
        if is_section and isinstance(value, dict):
            yield from _flat(value, f"{path}.")
        elif value is not None or not is_section:
            yield path, value


@cache
def _sections() -> frozenset[str]:
    """Return the paths of all sections, those of nested sections included."""
    sections = [path.rsplit(".", 1)[0] for path in paths()]
    return frozenset(sections) | {section.split(".")[0] for section in sections}


@cache
def _settings() -> frozenset[str]:
    """Return the paths of all settings."""
    return frozenset(paths())


def _variables(environment: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """Yield name, path of the setting, and value of each variable that sets one; an empty alias sets none."""
    for variable in sorted(environment):
        if variable in ALIASES:
            if environment[variable]:
                yield variable, ALIASES[variable], environment[variable]
        elif variable.startswith(PREFIX) and SEPARATOR in variable:
            path = variable.removeprefix(PREFIX).lower().replace(SEPARATOR, ".")
            yield variable, path, environment[variable]


def _put(values: Values, sources: dict[str, str], path: str, value: Any, source: str) -> None:
    """Set the value at a path, and its source; values of lower precedence are replaced.

    A path below a setting is one name of the setting's section, so that it is reported as unknown.
    """
    *sections, name = path.split(".")
    inner = values
    for depth, section in enumerate(sections, start=1):
        if ".".join(sections[:depth]) in _settings():
            name = ".".join([*sections[depth - 1 :], name])
            break
        inner = inner.setdefault(section, {})
        if not isinstance(inner, dict):
            return  # the section is not a mapping, which is reported at its own path
    inner[name] = value
    sources[path] = source


def _validated(values: Values, sources: Mapping[str, str]) -> Configuration:
    try:
        configuration = _adapter().validate_python(values)
    except ValidationError as error:
        raise errors.UserError("\n".join(_messages(error, sources))) from None
    if broken := broken_rules(configuration):
        raise errors.UserError("\n".join(_with_source(rule.path, rule.message, sources) for rule in broken))
    return configuration


@cache
def _adapter() -> TypeAdapter[Configuration]:
    return TypeAdapter(Configuration)


def _messages(error: ValidationError, sources: Mapping[str, str]) -> Iterator[str]:
    for detail in error.errors(include_url=False):
        path = ".".join(str(part) for part in detail["loc"])
        if detail["type"] in ("unexpected_keyword_argument", "extra_forbidden"):
            close = difflib.get_close_matches(path, [*paths(), *sorted(_sections())], n=1, cutoff=0.6)
            hint = f"; did you mean {close[0]}?" if close else "; see `slipway config explain`"
            yield _with_source(path, f"unknown setting{hint}", sources)
        else:
            yield _with_source(path, f"{detail['msg']}, not {_shown(detail['input'])}", sources)


def _with_source(path: str, message: str, sources: Mapping[str, str]) -> str:
    """Return `SOURCE: PATH: MESSAGE`, with the source of the value at the path, or of one below it."""
    source = next((text for key, text in sources.items() if key == path or key.startswith(f"{path}.")), "")
    return f"{source}: {path}: {message}" if source else f"{path}: {message}"


def _shown(value: Any) -> str:
    """Return a value for an error message, at most 60 characters of it."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."

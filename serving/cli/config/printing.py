"""`slipway config show` and `slipway config explain`."""

import difflib
import math
import sys
import textwrap
from collections.abc import Mapping
from dataclasses import asdict
from operator import attrgetter
from typing import Annotated, Any, Literal

import orjson
import typer
import yaml

from serving import errors
from serving.cli.config.configuration import Resolved, Values, load
from serving.cli.config.explain import SettingDescription, sections, settings
from serving.cli.config.schema import Configuration
from serving.cli.options import ConfigFile, OwnDataDir
from serving.data_dir import DataDir

_WIDTH = 100
_SOURCE_COLUMN = 40
"""Column at which the source of a value is printed."""


def show(
    every: Annotated[bool, typer.Option("--all", help="Defaults too.")] = False,
    output: Annotated[
        Literal["yaml", "json"], typer.Option("-o", "--output", help="Output format.")
    ] = "yaml",
    config_file: ConfigFile = None,
    data_dir: OwnDataDir = None,
) -> None:
    """Validate the configuration and print what differs from the defaults.

    Values come from the file, then SLIPWAY_SECTION__NAME in the environment. The output is a valid file.
    """
    resolved = load(DataDir.named(data_dir), config_file)
    values = asdict(resolved.configuration) if every else changed(resolved)
    if output == "json":
        sys.stdout.buffer.write(orjson.dumps(values, option=orjson.OPT_INDENT_2) + b"\n")
    elif not values:
        print("# Every setting has its default; `--all` prints them.")
    else:
        print("\n".join(_lines(values, resolved.sources)))


def explain(
    path: Annotated[
        str | None,
        typer.Argument(metavar="[SECTION[.SETTING]]", help="A section or a setting; without: all sections."),
    ] = None,
    output: Annotated[
        Literal["text", "json"], typer.Option("-o", "--output", help="Output format.")
    ] = "text",
) -> None:
    """Explain settings: unit, bounds, default and reason."""
    if path is None and output == "text":
        width = max(len(section.path) for section in sections())
        for section in sections():
            print(f"{section.path:<{width}}  {section.summary}")
        print("\n`slipway config explain SECTION` explains its settings.")
        return
    selected = [
        setting
        for setting in settings()
        if path is None or setting.path == path or setting.path.startswith(f"{path}.")
    ]
    if not selected:
        names = [setting.path for setting in settings()] + [section.path for section in sections()]
        close = difflib.get_close_matches(str(path), names, n=1)
        hint = f"; did you mean {close[0]}?" if close else "; `slipway config explain` lists the sections"
        raise errors.UserError(f"{path}: unknown setting{hint}")
    if output == "json":
        descriptions = [asdict(setting) for setting in selected]
        sys.stdout.buffer.write(orjson.dumps(descriptions, option=orjson.OPT_INDENT_2) + b"\n")
    else:
        print("\n\n".join(_explanation(setting) for setting in selected))


def changed(resolved: Resolved) -> Values:
    """Return the validated values that differ from the defaults, nested by section."""
    defaults, values = Configuration(), Values()
    for path in resolved.sources:
        value = attrgetter(path)(resolved.configuration)
        if value == attrgetter(path)(defaults):
            continue
        *parents, name = path.split(".")
        section_values = values
        for section in parents:
            section_values = section_values.setdefault(section, {})
        section_values[name] = value
    return values


def _lines(
    values: Mapping[str, Any], sources: Mapping[str, str], prefix: str = "", indent: str = ""
) -> list[str]:
    """Return `values` as lines of YAML, each setting with its source as a comment.

    `sources` is by path; `prefix` is the path of the section that `values` belong to, with a dot at its end.
    """
    lines = []
    for name, value in values.items():
        path = f"{prefix}{name}"
        if isinstance(value, dict):
            lines += [f"{indent}{name}:", *_lines(value, sources, f"{path}.", f"{indent}  ")]
        else:
            # Not folded, as further lines would lack the indent.
            line = f"{indent}{yaml.safe_dump({name: value}, width=math.inf).rstrip()}"
            lines.append(f"{line:<{_SOURCE_COLUMN}} # {sources[path]}" if path in sources else line)
    return lines


def _explanation(setting: SettingDescription) -> str:
    kind = setting.type if not setting.unit else f"{setting.type}, {setting.unit}"
    if setting.least is not None and setting.most is not None:
        kind += f", {setting.least:.10g} to {setting.most:.10g}"
    facts = f"  {kind}\n  default: {setting.default!r}\n  variable: {setting.variable}"
    reason = textwrap.fill(setting.reason, _WIDTH, initial_indent="  ", subsequent_indent="  ")
    return f"{setting.path}\n{facts}\n{reason}"

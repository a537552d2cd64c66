"""Runs command lines from a table of commands; the module of a command is imported when it is called."""

import importlib
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import typer
from typer.core import TyperGroup

_SETTINGS = {"help_option_names": ["-h", "--help"]}
_BEFORE_COMMANDS = ("-n", "--namespace", "--kubeconfig", "--data-dir")
"""Options that may stand before a command."""
_WITH_VALUE = ("-n", "--namespace=", "--kubeconfig=", "--data-dir=")
"""Starts of words that are such an option with its value."""
_SHORT_WITH_EQUALS = re.compile(r"^(-[a-zA-Z])=")


@dataclass(frozen=True)
class Command:
    """One command."""

    function: str
    """`module:function`."""
    summary: str
    """First line of the function's docstring, which the help of its group shows."""
    names: str = ""
    """Plural of the kind whose objects the arguments name, so that completion need not import the command's
    module."""


@dataclass(frozen=True)
class Group:
    """Commands below one name."""

    summary: str
    members: "Mapping[str, Command | Group]" = field(default_factory=dict)
    function: str = ""
    """`module:function` of the group's own options; empty: the group has none."""


def run(name: str, group: Group, arguments: Sequence[str]) -> None:
    """Run the command line of a program; only the command that is called is imported and parsed.

    A command without arguments needs no parser, which imports Pydantic: a third of the time of
    `slipway version`.

    Args:
        name: name of the program.
        group: all commands.
        arguments: words after the program's name.
    """
    path, remaining = [name], _with_attached_values(arguments)
    options: list[str] = []  # before a command; they become options of the command itself
    member: Command | Group = group
    while isinstance(member, Group):
        count = _leading_options(remaining)
        options, remaining = [*options, *remaining[:count]], remaining[count:]
        if not remaining or remaining[0] not in member.members:
            break
        path.append(remaining[0])
        member = member.members[remaining.pop(0)]
    remaining = [*options, *remaining]
    if (
        isinstance(member, Command)
        and not remaining
        and _runs_without_arguments(function := load(member.function))
    ):
        function()
    else:
        build(path[-1], member)(remaining, prog_name=" ".join(path))


def _leading_options(words: Sequence[str]) -> int:
    """Return the number of words at the start that are options of `_BEFORE_COMMANDS` or their values."""
    count = 0
    while count < len(words) and (words[count] in _BEFORE_COMMANDS or words[count].startswith(_WITH_VALUE)):
        count += 2 if words[count] in _BEFORE_COMMANDS else 1
    return min(count, len(words))


def _with_attached_values(arguments: Sequence[str]) -> list[str]:
    """Return the words with `-o=json` as `-ojson`, as kubectl reads it."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    return [_SHORT_WITH_EQUALS.sub(r"\1", word) for word in arguments[:end]] + list(arguments[end:])


def _runs_without_arguments(function: Callable[..., Any]) -> bool:
    """Whether each parameter of the function has a default."""
    parameters = inspect.signature(function).parameters.values()
    return all(parameter.default is not parameter.empty for parameter in parameters)


class LazyGroup(TyperGroup):
    """Holds a placeholder for each member, and builds the member that is called."""

    members: Mapping[str, Command | Group]
    """The members by name, from the table."""

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Return the name of the command, the command and its arguments."""
        name, command, remaining = super().resolve_command(ctx, args)
        return name, build(name, self.members[name]) if name else command, remaining


def build(name: str, member: Command | Group) -> Any:
    """Return the Typer command of a member of the table. Imports its module, but no member of a group."""
    app = typer.Typer(name=name, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    if isinstance(member, Command):
        app.command(name, context_settings=_SETTINGS)(load(member.function))
        return typer.main.get_command(app)
    for child, entry in member.members.items():
        app.command(child, help=entry.summary)(_no_options)
    own = load(member.function) if member.function else _no_options
    app.callback(
        cls=LazyGroup,
        help=member.summary,
        no_args_is_help=True,
        invoke_without_command=bool(member.function),
        context_settings=_SETTINGS,
    )(own)
    group = typer.main.get_command(app)
    assert isinstance(group, LazyGroup)
    group.members = member.members
    return group


def load(path: str) -> Callable[..., Any]:
    """Import `module:function`."""
    module, _, name = path.partition(":")
    function: Callable[..., Any] = getattr(importlib.import_module(module), name)
    return function


def _no_options() -> None:
    """Stand for a command in a group's help, or for the options of a group without any."""

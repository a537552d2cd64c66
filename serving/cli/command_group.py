"""Command groups that import a command when it is called; help and completion read the table of names."""

import importlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import typer
from typer.core import TyperGroup

_SETTINGS = {"help_option_names": ["-h", "--help"]}


@dataclass(frozen=True)
class Command:
    """One command."""

    function: str
    """`module:function`."""
    summary: str
    """First line of the function's docstring, which the help of its group shows."""


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
    """
    path, remaining = [name], list(arguments)
    member: Command | Group = group
    while isinstance(member, Group) and remaining and remaining[0] in member.members:
        path.append(remaining[0])
        member = member.members[remaining.pop(0)]
    if (
        isinstance(member, Command)
        and not remaining
        and _runs_without_arguments(function := load(member.function))
    ):
        function()
    else:
        build(path[-1], member, completion=len(path) == 1)(remaining, prog_name=" ".join(path))


def _runs_without_arguments(function: Callable[..., Any]) -> bool:
    parameters = inspect.signature(function).parameters.values()
    return all(parameter.default is not parameter.empty for parameter in parameters)


class LazyGroup(TyperGroup):
    """Holds a placeholder for each command, and builds the command that is called."""

    members: Mapping[str, Command | Group]

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Return the name of the command, the command and its arguments."""
        name, command, remaining = super().resolve_command(ctx, args)
        return name, build(name, self.members[name]) if name else command, remaining


def build(name: str, member: Command | Group, *, completion: bool = False) -> Any:
    """Return the Typer command of a member of the table. Imports its module, but no member of a group."""
    app = typer.Typer(
        name=name, add_completion=completion, pretty_exceptions_enable=False, rich_markup_mode=None
    )
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
    """Do nothing."""

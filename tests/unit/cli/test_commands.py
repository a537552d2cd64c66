"""The table of commands agrees with the functions that it names."""

import inspect
from collections.abc import Iterator

import pytest

from serving.cli.command_group import Command, Group, build, load
from serving.cli.commands import COMMANDS
from serving.resources import kinds


def commands(group: Group, before: str = "") -> Iterator[tuple[str, Command]]:
    for name, member in group.members.items():
        if isinstance(member, Group):
            yield from commands(member, f"{before}{name} ")
        else:
            yield f"{before}{name}", member


ALL = dict(commands(COMMANDS))


@pytest.mark.parametrize("path", ALL)
def test_a_summary_is_the_first_line_of_the_docstring(path: str) -> None:
    documentation = inspect.getdoc(load(ALL[path].function)) or ""
    assert documentation.splitlines()[0] == ALL[path].summary


def test_the_names_that_a_shell_completes_are_of_a_kind() -> None:
    plurals = {command.names for command in ALL.values() if command.names}
    assert plurals
    assert plurals <= {kind.plural for kind in kinds.ALL}


@pytest.mark.parametrize("path", ALL)
def test_a_command_is_built_with_its_options(path: str) -> None:
    command = build(path, ALL[path])
    assert "help_option_names" in command.context_settings
    names = {parameter.name for parameter in command.params}
    assert "target" not in names
    takes_target = {"namespace", "kubeconfig", "data_dir"} & names
    assert takes_target in (
        {"namespace", "kubeconfig", "data_dir"},
        {"kubeconfig", "data_dir"},
        {"data_dir"},
        set(),
    )

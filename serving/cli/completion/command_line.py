"""Parses a command line up to its cursor, and returns the candidates for the word there.

Reads the table of commands and the signature of one command; builds no parser.
"""

import inspect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any, Literal, get_args, get_origin

from typer.models import ArgumentInfo, OptionInfo

from serving.cli.command_group import Command, Group, load
from serving.cli.completion.candidates import names_of
from serving.cli.completion.values import Candidates, Completes, Typed, choices

_HELP = ("-h", "--help")


@dataclass(frozen=True)
class _Parameter:
    """An argument, or an option with its spellings."""

    name: str
    spellings: tuple[str, ...]
    takes_value: bool
    is_variadic: bool
    candidates: Candidates


@dataclass
class _Cursor:
    """The command and the options that the words before the cursor have chosen."""

    member: Command | Group
    of_groups: list[_Parameter] = field(default_factory=list)
    """Options that stand before commands."""
    open_option: _Parameter | None = None
    """The option whose value is at the cursor."""
    has_ended_options: bool = False
    arguments: list[str] = field(default_factory=list)
    options: dict[str, str] = field(default_factory=dict)

    @cached_property
    def parameters(self) -> list[_Parameter]:
        """Those of the member; importing a command can take long."""
        return _parameters(self.member)

    def option(self, spelling: str) -> _Parameter | None:
        """Return the option with this spelling."""
        of_groups = next((each for each in self.of_groups if spelling in each.spellings), None)
        return of_groups or next((each for each in self.parameters if spelling in each.spellings), None)


def completions(commands: Group, words: Sequence[str]) -> list[str]:
    """Return what the last word, which may be empty, can become."""
    *before, word = words
    cursor = _Cursor(commands)
    for each in before:
        if not _advance(cursor, each):
            return []
    typed = Typed(word, tuple(cursor.arguments), cursor.options)
    return [candidate for candidate in _candidates(cursor, typed) if candidate.startswith(word)]


def _advance(cursor: _Cursor, word: str) -> bool:
    """Take one complete word; return False where there is no such command."""
    if cursor.open_option is not None:
        cursor.options[cursor.open_option.name] = word
        cursor.open_option = None
    elif word == "--":
        cursor.has_ended_options = True
    elif word.startswith("-") and word != "-" and not cursor.has_ended_options:
        _take_option(cursor, word)
    elif isinstance(cursor.member, Group):
        if word not in cursor.member.members:
            return False
        cursor.of_groups += cursor.parameters
        cursor.member = cursor.member.members[word]
        del cursor.parameters
    else:
        cursor.arguments.append(word)
    return True


def _take_option(cursor: _Cursor, word: str) -> None:
    name, equals, value = word.partition("=")
    option = cursor.option(name)
    if option is None and not word.startswith("--"):  # -nNAME
        name, equals, value = word[:2], "=", word[2:]
        option = cursor.option(name)
    if option is None or not option.takes_value:
        return
    if equals:
        cursor.options[option.name] = value
    else:
        cursor.open_option = option


def _candidates(cursor: _Cursor, typed: Typed) -> list[str]:
    if cursor.open_option is not None:
        return cursor.open_option.candidates(typed)
    if typed.word.startswith("-") and not cursor.has_ended_options:
        return _of_option(cursor, typed)
    if isinstance(cursor.member, Group):
        return list(cursor.member.members)
    if cursor.member.names and not typed.arguments:
        return names_of(cursor.member.names)(typed)
    places = [each for each in cursor.parameters if not each.spellings]
    here = places[len(typed.arguments) :] or [each for each in places[-1:] if each.is_variadic]
    if not here:
        return []
    return names_of(cursor.member.names)(typed) if cursor.member.names else here[0].candidates(typed)


def _of_option(cursor: _Cursor, typed: Typed) -> list[str]:
    name, equals, value = typed.word.partition("=")
    if not equals:
        return [*(spelling for each in cursor.parameters for spelling in each.spellings), *_HELP]
    option = cursor.option(name)
    values = option.candidates(Typed(value, typed.arguments, typed.options)) if option else []
    return [f"{name}={candidate}" for candidate in values]


def _parameters(member: Command | Group) -> list[_Parameter]:
    if not member.function:
        return []
    signature = inspect.signature(load(member.function))
    return [parameter for each in signature.parameters.values() for parameter in _declared(each)]


def _declared(parameter: inspect.Parameter) -> Iterator[_Parameter]:
    """Yield the argument or option of a function's parameter."""
    if get_origin(parameter.annotation) is not Annotated:
        return
    type_, *metadata = get_args(parameter.annotation)
    candidates = next(
        (each.candidates for each in metadata if isinstance(each, Completes)), choices(*_words(type_))
    )
    for info in metadata:
        if isinstance(info, OptionInfo):
            yield _Parameter(
                parameter.name, _spellings(parameter.name, type_, info), type_ is not bool, False, candidates
            )
        elif isinstance(info, ArgumentInfo):
            yield _Parameter(parameter.name, (), True, _is_list(type_), candidates)


def _spellings(name: str, type_: Any, info: OptionInfo) -> tuple[str, ...]:
    declared = (
        [info.default, *(info.param_decls or ())] if info.default is not ... else info.param_decls or ()
    )
    if not declared:
        long = name.replace("_", "-")
        return (f"--{long}", f"--no-{long}") if type_ is bool else (f"--{long}",)
    return tuple(str(spelling) for each in declared for spelling in str(each).split("/"))


def _alternatives(type_: Any) -> tuple[Any, ...]:
    """Return the members of `T | None`, else the type itself."""
    return (type_,) if get_origin(type_) in (None, list, Literal) else get_args(type_)


def _words(type_: Any) -> list[str]:
    """Return the words of a Literal."""
    return [word for each in _alternatives(type_) if get_origin(each) is Literal for word in get_args(each)]


def _is_list(type_: Any) -> bool:
    return any(get_origin(each) is list for each in _alternatives(type_))

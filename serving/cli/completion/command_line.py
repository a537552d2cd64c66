"""Parses a command line up to its cursor, and returns the candidates for the word at the cursor.

The parser of a command is not built: it takes too long for a Tab. The table of commands and the signature of
the command's function have the names, the options and the completers.
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
    """A parameter of a command's function: an argument or an option."""

    name: str
    spellings: tuple[str, ...]
    """Of an option, such as `-n` and `--namespace`; empty: an argument."""
    takes_value: bool
    is_variadic: bool
    """Whether it is an argument that takes all further words."""
    candidates: Candidates


@dataclass
class _ParseState:
    """The state of the parse after the words before the cursor."""

    member: Command | Group
    """The innermost group or command that the words name."""
    group_options: list[_Parameter] = field(default_factory=list)
    """Options of the groups around `member`."""
    open_option: _Parameter | None = None
    """The option whose value is the next word."""
    has_ended_options: bool = False
    """Whether `--` was typed: all further words are arguments."""
    arguments: list[str] = field(default_factory=list)
    options: dict[str, str] = field(default_factory=dict)
    """As `Typed.options`."""

    @cached_property
    def parameters(self) -> list[_Parameter]:
        """Parameters of `member`, whose import can take long; `enter` clears the cache."""
        return _parameters(self.member)

    def enter(self, name: str, group: Group) -> None:
        """Go from `group`, the current member, to its member `name`."""
        self.group_options += self.parameters
        self.member = group.members[name]
        del self.parameters

    def option(self, spelling: str) -> _Parameter | None:
        """Return the option with this spelling, of a group or of `member`."""
        of_group = next((option for option in self.group_options if spelling in option.spellings), None)
        if of_group is not None:  # without an import of `member`
            return of_group
        return next((option for option in self.parameters if spelling in option.spellings), None)


def completions(commands: Group, words: Sequence[str]) -> list[str]:
    """Return the candidates for the last of the words, which may be empty; none after an unknown command."""
    *words_before, word = words
    state = _ParseState(commands)
    for word_before in words_before:
        if not _advance(state, word_before):
            return []
    typed = Typed(word, tuple(state.arguments), state.options)
    return [candidate for candidate in _candidates(state, typed) if candidate.startswith(word)]


def _advance(state: _ParseState, word: str) -> bool:
    """Take one complete word; return False if the word should name a command and there is none."""
    if state.open_option is not None:
        state.options[state.open_option.name] = word
        state.open_option = None
    elif word == "--":
        state.has_ended_options = True
    elif word.startswith("-") and word != "-" and not state.has_ended_options:
        _take_option(state, word)
    elif isinstance(state.member, Group):
        if word not in state.member.members:
            return False
        state.enter(word, state.member)
    else:
        state.arguments.append(word)
    return True


def _take_option(state: _ParseState, word: str) -> None:
    """Take a word such as `-n`, `-nNAME`, `--namespace` or `--namespace=NAME`."""
    name, equals, value = word.partition("=")
    option = state.option(name)
    if option is None and not word.startswith("--"):  # such as -nNAME
        name, equals, value = word[:2], "=", word[2:]
        option = state.option(name)
    if option is None or not option.takes_value:
        return
    if equals:
        state.options[option.name] = value
    else:
        state.open_option = option


def _candidates(state: _ParseState, typed: Typed) -> list[str]:
    """Return the candidates for the word at the cursor: a value, an option, a command or an argument."""
    if state.open_option is not None:
        return state.open_option.candidates(typed)
    if typed.word.startswith("-") and not state.has_ended_options:
        return _option_candidates(state, typed)
    if isinstance(state.member, Group):
        return list(state.member.members)
    if state.member.names and not typed.arguments:  # without an import of the command
        return names_of(state.member.names)(typed)
    arguments = [parameter for parameter in state.parameters if not parameter.spellings]
    open_arguments = arguments[len(typed.arguments) :]
    if not open_arguments:
        open_arguments = [argument for argument in arguments[-1:] if argument.is_variadic]
    if state.member.names and open_arguments:
        return names_of(state.member.names)(typed)
    return open_arguments[0].candidates(typed) if open_arguments else []


def _option_candidates(state: _ParseState, typed: Typed) -> list[str]:
    """Return the spellings of options, or `--OPTION=VALUE` for each value of a complete option."""
    name, equals, value = typed.word.partition("=")
    if not equals:
        return [*(spelling for option in state.parameters for spelling in option.spellings), *_HELP]
    option = state.option(name)
    values = option.candidates(Typed(value, typed.arguments, typed.options)) if option else []
    return [f"{name}={candidate}" for candidate in values]


def _parameters(member: Command | Group) -> list[_Parameter]:
    """Return the parameters of the function of a command or of a group's options; imports its module."""
    if not member.function:
        return []
    signature = inspect.signature(load(member.function))
    return [declared for parameter in signature.parameters.values() for declared in _declared(parameter)]


def _declared(parameter: inspect.Parameter) -> Iterator[_Parameter]:
    """Yield the argument or the option that a parameter declares by Typer's annotation, if it does."""
    if get_origin(parameter.annotation) is not Annotated:
        return
    type_, *metadata = get_args(parameter.annotation)
    candidates = next(
        (item.candidates for item in metadata if isinstance(item, Completes)),
        choices(*_literal_values(type_)),
    )
    for info in metadata:
        if isinstance(info, OptionInfo):
            yield _Parameter(
                parameter.name,
                _spellings(parameter.name, type_, info),
                takes_value=type_ is not bool,
                is_variadic=False,
                candidates=candidates,
            )
        elif isinstance(info, ArgumentInfo):
            yield _Parameter(
                parameter.name,
                spellings=(),
                takes_value=True,
                is_variadic=_is_list(type_),
                candidates=candidates,
            )


def _spellings(name: str, type_: Any, info: OptionInfo) -> tuple[str, ...]:
    """Return the spellings of an option: the declared ones, else those that Typer makes of the name."""
    declared: list[Any] = list(info.param_decls or ())
    if info.default is not ...:  # in an `Annotated`, `typer.Option` takes its first spelling as the default
        declared = [info.default, *declared]
    if not declared:
        long = name.replace("_", "-")
        return (f"--{long}", f"--no-{long}") if type_ is bool else (f"--{long}",)
    return tuple(spelling for declaration in declared for spelling in str(declaration).split("/"))


def _alternatives(type_: Any) -> tuple[Any, ...]:
    """Return the members of `T | None`, else the type itself."""
    return (type_,) if get_origin(type_) in (None, list, Literal) else get_args(type_)


def _literal_values(type_: Any) -> list[str]:
    """Return the values of a Literal."""
    literals = [member for member in _alternatives(type_) if get_origin(member) is Literal]
    return [value for literal in literals for value in get_args(literal)]


def _is_list(type_: Any) -> bool:
    return any(get_origin(member) is list for member in _alternatives(type_))

"""Completers for the values of arguments and options; commands declare it beside Typer's annotation."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Typed:
    """The words of a command line before the cursor."""

    word: str
    """The word at the cursor, as far as it is typed."""
    arguments: tuple[str, ...] = ()
    """The arguments before it."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Values of the options before it, by parameter, such as `namespace`."""


Candidates = Callable[[Typed], list[str]]
"""Returns possible words; those that do not start with the typed word are dropped."""


@dataclass(frozen=True)
class Completes:
    """In an `Annotated`: what completes this argument, or the value of this option."""

    candidates: Candidates


def choices(*words: str) -> Candidates:
    """Return candidates that do not depend on what is typed."""
    return lambda _typed: list(words)

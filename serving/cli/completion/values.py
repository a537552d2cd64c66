"""Types of completers. A command declares a completer with `Completes` in a parameter's annotation."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Typed:
    """A command line up to the cursor."""

    word: str
    """The word at the cursor, as far as it is typed."""
    arguments: tuple[str, ...] = ()
    """The arguments before `word`."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Values of the options before `word`, by parameter of the function, such as `namespace`."""


Candidates = Callable[[Typed], list[str]]
"""A completer: returns candidates for the word at the cursor. The caller drops those that do not start with
`Typed.word`."""


@dataclass(frozen=True)
class Completes:
    """Metadata of an `Annotated` parameter: the completer of the argument, or of the option's value."""

    candidates: Candidates


def choices(*words: str) -> Candidates:
    """Return a completer with the same candidates for every command line."""
    return lambda _typed: list(words)

"""Parses JSONPaths and templates as kubectl does.

Three mistakes that kubectl accepts are errors here: a range without an end, text after `{end`, and more than
one `range` in a pair of braces. Two forms that kubectl has no meaning for are accepted: keys in double
quotes, and keys in quotes with dots or brackets in them.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache

from serving.resources.formats.jsonpath.syntax import (
    Descent,
    Field,
    Filter,
    Index,
    Literal,
    Path,
    Range,
    Slice,
    Step,
    Template,
    Union,
    Wildcard,
)

_LAST_CHARACTER = 0x10FFFF
_SURROGATES = range(0xD800, 0xE000)
"""Code points that are no characters: halves of a pair in UTF-16."""
OPERATORS = ("==", "!=", "<", "<=", ">", ">=")

_TEXT = re.compile(r"[^{]+")
"""Text outside of braces."""
_KEYWORD = re.compile(r"[ \t]*(range|end)(?![^\s.,\[\]$@{}])")
"""A keyword at the beginning of a pair of braces; `{ranges}` and `{end_time}` begin with none."""
_OPERATOR = re.compile(r"[!<>=~]+")
"""A comparison, also one that is not in `OPERATORS`, such as `=~`, so that the message names it."""
_NAME = r"(?:\\.|[^\s.,\[\]$@{}\\])*"
_NAME_IN_FILTER = r"(?:\\.|[^\s.,\[\]$@{}\\!<>=()])*"
"""Names of fields; a backslash escapes a character that would end the name."""
_QUOTED = r'"(?:\\.|[^"\\\n])*"|' r"'(?:\\.|[^'\\\n])*'"
_STEP = r"""
    (?P<here>[@$])                                  # the value itself: no step
  | (?P<descent>\.\.(?:(?=\w)NAME)?)                # `..`, also with a field: `..name`
  | \.(?P<field>NAME)                               # `.name` or `.*`
  | (?P<filter>\[\?\()                              # the begin of `[?(...)]`
  | \[(?P<brackets>(?:QUOTED|[^\]"'\n])*)\]         # `[0]`, `[1:3]`, `[*]`, `['key']`, `[0,2]`
  | (?P<quoted>QUOTED)                              # literals: a text,
  | (?P<number>[-+\d][\d.]*)                        # a number,
  | (?P<word>\w NAME)                               # `true` or `false`
"""
"""One step. The name of the group that matches is the kind of the step. `_step_pattern` replaces NAME and
QUOTED by their patterns."""
_ELEMENT = re.compile(rf"\s*((?:{_QUOTED}|[^,])*)(,|$)")
"""One element between brackets, and the comma after it: `0`, then `2`, of `[0,2]`."""
_BOUNDS = re.compile(r"(-?\d+)?(:(-?\d+)?){0,2}")
"""An index or a slice."""
_RELAXED = re.compile(r"\{\.?([^{}]+)\}|\.?([^{}]+)")
"""A path whose braces and first dot are optional, as in kubectl's custom columns."""
_ESCAPE = re.compile(
    r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-7]{3})|(.?))", re.DOTALL
)
_ESCAPED = {
    "a": "\a",
    "b": "\b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
    "\\": "\\",
    "'": "'",
    '"': '"',
}


def _step_pattern(name: str) -> re.Pattern[str]:
    """Return the pattern of one step, with the pattern of a field's name."""
    return re.compile(_STEP.replace("NAME", name).replace("QUOTED", f"(?:{_QUOTED})"), re.VERBOSE)


_STEP_PATTERNS = {False: _step_pattern(_NAME), True: _step_pattern(_NAME_IN_FILTER)}
"""Keyed by whether the step is inside of a filter, where a comparison or a parenthesis ends a name."""


@dataclass
class _OpenRange:
    """A `{range path}` whose `{end}` is not read yet; the outermost one is the template itself."""

    path: Path = ()
    body: list[Path | Range] = field(default_factory=list)


@cache
def template(text: str) -> Template:
    """Return a template, such as `{range .items[*]}{.metadata.name}, {end}`.

    Raises:
        ValueError: it is not a template; the message has the rule and the place.
    """
    open_ranges = [_OpenRange()]
    at = 0
    while at < len(text):
        parts = open_ranges[-1].body
        if plain := _TEXT.match(text, at):
            parts.append((Literal(plain[0]),))
            at = plain.end()
            continue
        action = _Reader(text, at + 1)
        keyword = action.keyword()
        steps = action.path("}")
        at = action.at + 1
        if keyword == "range":
            open_ranges.append(_OpenRange(steps))
        elif keyword != "end":
            parts.append(steps)
        elif steps or len(open_ranges) == 1:
            raise ValueError(f"{{end}} must end a {{range}}, and nothing else (character {at})")
        else:
            ended = open_ranges.pop()
            open_ranges[-1].body.append(Range(ended.path, tuple(ended.body)))
    if len(open_ranges) > 1:
        raise ValueError("a {range} has no {end}")
    return tuple(open_ranges[0].body)


@cache
def path(expression: str) -> Path:
    """Return a path that is written like `.status.url`, `status.url` or `{.status.url}`.

    Raises:
        ValueError: it is not a path; the message has the rule and the place.
    """
    relaxed = _RELAXED.fullmatch(expression)
    if relaxed is None:
        raise ValueError(f"{expression!r} is not a path such as .metadata.name or {{.metadata.name}}")
    without_braces = relaxed[1] or relaxed[2]
    return _Reader(f".{without_braces}}}", 0).path("}")


class _Reader:
    """Reads the steps of a path from left to right; `at` is the position of the next character."""

    def __init__(self, text: str, at: int) -> None:
        self._text = text
        self.at = at
        self._in_filter = False

    def keyword(self) -> str:
        """Read `range` or `end`; return an empty string where there is neither."""
        word = _KEYWORD.match(self._text, self.at)
        if word is None:
            return ""
        self.at = word.end()
        return word[1]

    def path(self, ends: str) -> Path:
        """Read steps up to one of the characters in `ends`, and leave that one unread."""
        steps: list[Step] = []
        while True:
            while self._text[self.at : self.at + 1] in (" ", "\t"):
                self.at += 1
            character = self._text[self.at : self.at + 1]
            if character and character in ends:
                return tuple(steps)
            token = _STEP_PATTERNS[self._in_filter].match(self._text, self.at)
            if not character or token is None:
                raise ValueError(self._unreadable(character))
            self.at = token.end()
            steps += self._steps(token, steps)

    def _steps(self, token: re.Match[str], before: list[Step]) -> tuple[Step, ...]:
        """Return the steps that a match of `_STEP` means: none, one, or two for `..name`."""
        kind, content = str(token.lastgroup), token[str(token.lastgroup)]
        if kind == "here":
            return ()
        if kind == "filter":
            return (self._filter(),)
        if kind == "descent":
            if before[-1:] == [Descent()]:
                raise ValueError("a path must not have two .. in a row")
            return (Descent(), *([_field(content[2:])] if content[2:] else []))
        return (_STEP_OF_KIND[kind](content),)

    def _filter(self) -> Filter:
        """Read a filter after its `[?(`, up to and with its `)]`."""
        outside, self._in_filter = self._in_filter, True
        left = self.path("!<>=~)")
        operator = ""
        right: Path = ()
        if comparison := _OPERATOR.match(self._text, self.at):
            operator = comparison[0]
            if operator not in OPERATORS:
                raise ValueError(f"{operator!r} is not one of the comparisons {' '.join(OPERATORS)}")
            self.at = comparison.end()
            right = self.path(")")
        if not self._text.startswith(")]", self.at):
            raise ValueError(f"a filter must end with )] (character {self.at})")
        self.at += len(")]")
        self._in_filter = outside
        return Filter(left, operator, right)

    def _unreadable(self, character: str) -> str:
        if not character:
            return "a { or a filter is not closed"
        if character in "[\"'":
            return f"{character} at character {self.at} is not closed"
        return f"{character!r} at character {self.at} does not belong there"


def _field(name: str) -> Step:
    """Return the step of `.name`, without the backslashes of escaped characters."""
    return Wildcard() if name == "*" else Field(name.replace("\\", ""))


def _quoted(text: str) -> Literal:
    return Literal(_ESCAPE.sub(_unescaped, text[1:-1]))


def _unescaped(escape: re.Match[str]) -> str:
    *hexadecimal, octal, character = escape.groups()
    if character in _ESCAPED:
        return _ESCAPED[character]
    code = int(octal, 8) if octal else None
    if digits := next(filter(None, hexadecimal), ""):
        code = int(digits, 16)
    if code is None or code > _LAST_CHARACTER or code in _SURROGATES:
        raise ValueError(f"{escape[0]!r} is not an escape sequence")
    return chr(code)


def _number(text: str) -> Literal:
    for read in (int, float):
        try:
            return Literal(read(text))
        except ValueError:
            continue
    raise ValueError(f"{text!r} is not a number")


def _word(text: str) -> Literal:
    if text in ("true", "false"):
        return Literal(text == "true")
    raise ValueError(f"{text!r} is not a keyword; write a field as .{text}, and a text in quotes")


def _brackets(content: str) -> Step:
    """Return the step of `[content]`."""
    elements, at = [], 0
    while element := _ELEMENT.match(content, at):
        elements.append(_element(element[1].rstrip()))
        at = element.end()
        if not element[2]:
            break
    return elements[0] if len(elements) == 1 else Union(tuple(elements))


def _element(content: str) -> Step:
    """Return the step of one element between brackets: a key, an index or a slice."""
    if re.fullmatch(_QUOTED, content):
        return Field(content[1:-1].replace("\\", ""))
    if content == "*":
        return Slice(None, None, None)
    if not _BOUNDS.fullmatch(content):
        raise ValueError(f"[{content}] must have an index, a slice, a key in quotes or *")
    if ":" not in content:
        return Index(int(content or 0))  # `[]` is the first item, as with kubectl
    bounds = [int(digits) if digits else None for digits in content.split(":")]
    first, last, step = bounds if len(bounds) == 3 else (*bounds, None)
    return Slice(first, last, step)


_STEP_OF_KIND: dict[str, Callable[[str], Step]] = {
    "field": _field,
    "brackets": _brackets,
    "quoted": _quoted,
    "number": _number,
    "word": _word,
}
"""By the name of a group in `_STEP`: the function that makes the step from the text of the group."""

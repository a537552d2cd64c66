"""Parses JSONPaths and templates as kubectl does.

Three mistakes that kubectl accepts are errors here: a range without an end, text after `{end`, and more than
one `range` in a pair of braces. Two forms that kubectl has no meaning for are accepted: keys in double
quotes, and keys in quotes with dots or brackets in them.
"""

import re
from collections.abc import Callable
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
"""Halves of characters, which no encoding has."""
OPERATORS = ("==", "!=", "<", "<=", ">", ">=")

_TEXT = re.compile(r"[^{]+")
_KEYWORD = re.compile(r"[ \t]*(range|end)(?![^\s.,\[\]$@{}])")
_OPERATOR = re.compile(r"[!<>=~]+")
_NAME = r"(?:\\.|[^\s.,\[\]$@{}\\])*"
_NAME_IN_FILTER = r"(?:\\.|[^\s.,\[\]$@{}\\!<>=()])*"
_QUOTED = r'"(?:\\.|[^"\\\n])*"|' r"'(?:\\.|[^'\\\n])*'"
_STEP = r"""
    (?P<here>[@$])
  | (?P<descent>\.\.(?:(?=\w)NAME)?)
  | \.(?P<field>NAME)
  | (?P<filter>\[\?\()
  | \[(?P<brackets>(?:QUOTED|[^\]"'\n])*)\]
  | (?P<quoted>QUOTED)
  | (?P<number>[-+\d][\d.]*)
  | (?P<word>\w NAME)
"""
_ELEMENT = re.compile(rf"\s*((?:{_QUOTED}|[^,])*)(,|$)")
_BOUNDS = re.compile(r"(-?\d+)?(:(-?\d+)?){0,2}")
_RELAXED = re.compile(r"\{\.?([^{}]+)\}|\.?([^{}]+)")
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


def _token(name: str) -> re.Pattern[str]:
    return re.compile(_STEP.replace("NAME", name).replace("QUOTED", f"(?:{_QUOTED})"), re.VERBOSE)


_TOKENS = {False: _token(_NAME), True: _token(_NAME_IN_FILTER)}
"""By whether it is inside of a filter, where a comparison ends a name."""


@cache
def template(text: str) -> Template:
    """Return a template, such as `{range .items[*]}{.metadata.name}, {end}`.

    Raises:
        ValueError: it is not a template; the message has the rule and the place.
    """
    blocks: list[tuple[Path, list[Path | Range]]] = [((), [])]
    at = 0
    while at < len(text):
        parts = blocks[-1][1]
        if plain := _TEXT.match(text, at):
            parts.append((Literal(plain[0]),))
            at = plain.end()
            continue
        action = _Reader(text, at + 1)
        keyword = action.keyword()
        steps = action.path("}")
        at = action.at + 1
        if keyword == "range":
            blocks.append((steps, []))
        elif keyword != "end":
            parts.append(steps)
        elif steps or len(blocks) == 1:
            raise ValueError(f"{{end}} must end a {{range}}, and nothing else (character {at})")
        else:
            repeated, body = blocks.pop()
            blocks[-1][1].append(Range(repeated, tuple(body)))
    if len(blocks) > 1:
        raise ValueError("a {range} has no {end}")
    return tuple(blocks[0][1])


@cache
def path(expression: str) -> Path:
    """Return a path that is written like `.status.url`, `status.url` or `{.status.url}`.

    Raises:
        ValueError: it is not a path; the message has the rule and the place.
    """
    relaxed = _RELAXED.fullmatch(expression)
    if relaxed is None:
        raise ValueError(f"{expression!r} is not a path such as .metadata.name or {{.metadata.name}}")
    return _Reader(f".{relaxed[1] or relaxed[2]}}}", 0).path("}")


class _Reader:
    """Reads the steps of a path, from left to right."""

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
        """Read steps up to one of the characters `ends`."""
        steps: list[Step] = []
        while True:
            while self._text[self.at : self.at + 1] in (" ", "\t"):
                self.at += 1
            character = self._text[self.at : self.at + 1]
            if character and character in ends:
                return tuple(steps)
            token = _TOKENS[self._in_filter].match(self._text, self.at)
            if not character or token is None:
                raise ValueError(self._unreadable(character))
            self.at = token.end()
            steps += self._steps(token, steps)

    def _steps(self, token: re.Match[str], before: list[Step]) -> tuple[Step, ...]:
        kind, content = str(token.lastgroup), token[str(token.lastgroup)]
        if kind == "here":
            return ()
        if kind == "filter":
            return (self._filter(),)
        if kind == "descent":
            if before[-1:] == [Descent()]:
                raise ValueError("a path must not have two .. in a row")
            return (Descent(), *([_field(content[2:])] if content[2:] else []))
        return (_READ[kind](content),)

    def _filter(self) -> Filter:
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
    return Wildcard() if name == "*" else Field(name.replace("\\", ""))


def _quoted(text: str) -> Literal:
    return Literal(_ESCAPE.sub(_unescaped, text[1:-1]))


def _unescaped(escape: re.Match[str]) -> str:
    *hexadecimal, octal, character = escape.groups()
    if character in _ESCAPED:
        return _ESCAPED[character]
    digits = next(filter(None, hexadecimal), "")
    code = int(octal, 8) if octal else int(digits or "-1", 16)
    if not 0 <= code <= _LAST_CHARACTER or code in _SURROGATES:
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
    elements, at = [], 0
    while element := _ELEMENT.match(content, at):
        elements.append(_element(element[1].rstrip()))
        at = element.end()
        if not element[2]:
            break
    return elements[0] if len(elements) == 1 else Union(tuple(elements))


def _element(content: str) -> Step:
    if re.fullmatch(_QUOTED, content):
        return Field(content[1:-1].replace("\\", ""))
    if content == "*":
        return Slice(None, None, None)
    digits = content.split(":")
    if not _BOUNDS.fullmatch(content):
        raise ValueError(f"[{content}] must have an index, a slice, a key in quotes or *")
    if len(digits) == 1:
        return Index(int(content or 0))
    first, last, step = [int(each) if each else None for each in [*digits, ""][:3]]
    return Slice(first, last, step)


_READ: dict[str, Callable[[str], Step]] = {
    "field": _field,
    "brackets": _brackets,
    "quoted": _quoted,
    "number": _number,
    "word": _word,
}

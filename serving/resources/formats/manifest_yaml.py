"""YAML of manifests, as Kubernetes reads it (sigs.k8s.io/yaml): only the types of JSON, and Go's numbers.

PyYAML by itself reads `1e3` and `y` as strings, `12:30:45` as a number and `2024-01-01` as a date.
"""

import math
import re
from typing import Any

import yaml

_PREFIX = "tag:yaml.org,2002:"
_STR, _BOOL, _INT, _FLOAT, _TIMESTAMP, _VALUE = (
    f"{_PREFIX}{name}" for name in ("str", "bool", "int", "float", "timestamp", "value")
)

_LETTERS = frozenset("yYnN")
"""Booleans that PyYAML does not know."""

_FIRST = frozenset("+-.0123456789")
"""First characters of numbers: most scalars are no numbers, and are recognised by one look-up."""

_INTEGER = re.compile(
    r"(?P<sign>[-+]?)(?:0x(?P<hex>[0-9a-f]+)|0b(?P<binary>[01]+)|0o?(?P<octal>[0-7]+)|"
    r"(?P<decimal>0|[1-9]\d{0,19}))",
    re.ASCII | re.IGNORECASE,
)
"""An integer as Go's `strconv.ParseInt` with base 0 reads it: `010` is octal. 64 bits have at most 20 decimal
digits."""

_BASES = {"hex": 16, "binary": 2, "octal": 8, "decimal": 10}

_DECIMAL = re.compile(r"[-+]?(?:\.\d+|\d+(?:\.\d*)?)(?:e[-+]?\d+)?", re.ASCII | re.IGNORECASE)
"""`yamlStyleFloat` of goyaml.v2."""

_NOT_FINITE = {
    sign + spelling: float(f"{sign}{spelling[1:]}")
    for sign, spellings in {
        "": (".inf", ".Inf", ".INF", ".nan", ".NaN", ".NAN"),
        "+": (".inf", ".Inf", ".INF"),
        "-": (".inf", ".Inf", ".INF"),
    }.items()
    for spelling in spellings
}

_EXACT = 1e21
"""Integral floats below this number are written without an exponent by Go's JSON, so they are integers."""


class Loader(yaml.SafeLoader):
    """Reads plain dates, and numbers of base 60 such as `12:30:45`, as strings."""

    bool_values = yaml.SafeLoader.bool_values | {"y": True, "n": False}

    def resolve(self, kind: type[yaml.Node], value: Any, implicit: Any) -> Any:
        """Return the tag of a node.

        Args:
            kind: the class of the node.
            value: the text of a scalar.
            implicit: two booleans; the first is true for a plain scalar, without quotes and tag.
        """
        own = _own_tag(value) if kind is yaml.ScalarNode and implicit[0] else None
        return own or super().resolve(kind, value, implicit)  # type: ignore[no-untyped-call]

    def construct_boolean(self, node: yaml.ScalarNode) -> bool:
        """Return the boolean of a scalar.

        Raises:
            ConstructorError: the scalar has the tag of a boolean, and is none.
        """
        boolean = self.bool_values.get(node.value.lower())
        if boolean is None:
            problem = f"{node.value!r} is not a boolean"
            raise yaml.constructor.ConstructorError(problem=problem, problem_mark=node.start_mark)
        return boolean

    def construct_number(self, node: yaml.ScalarNode) -> int | float:
        """Return the number of a scalar.

        Raises:
            ConstructorError: the scalar has the tag of a number, and is none.
        """
        number = _number(node.value)
        if number is None:
            problem = f"{node.value!r} is not a number"
            raise yaml.constructor.ConstructorError(problem=problem, problem_mark=node.start_mark)
        return number


class Dumper(yaml.SafeDumper):
    """Quotes the strings that `Loader`, or Kubernetes, would read as another type."""

    def resolve(self, kind: type[yaml.Node], value: Any, implicit: Any) -> Any:
        """Return the tag that a reader gives to a node; a scalar with another tag is quoted.

        Args:
            kind: the class of the node.
            value: the text of a scalar.
            implicit: two booleans; the first is true for the tag of a plain scalar.
        """
        tag = super().resolve(kind, value, implicit)  # type: ignore[no-untyped-call]
        if tag == _STR and implicit[0]:
            return _own_tag(value) or tag
        return tag


def _own_tag(text: str) -> str | None:
    """Return the tag of a plain scalar that is a number, or a boolean of one letter; None for others."""
    if text in _LETTERS:
        return _BOOL
    number = _number(text)
    if number is None:
        return None
    return _INT if isinstance(number, int) else _FLOAT


def _number(text: str) -> int | float | None:
    """Return the number that a scalar denotes; None if it is no number."""
    if not text or text[0] not in _FIRST:
        return None
    plain = text.replace("_", "")
    if integer := _INTEGER.fullmatch(plain):
        digits = next(name for name in _BASES if integer[name])
        whole = int(integer["sign"] + integer[digits], _BASES[digits])
        if -(2**63) <= whole < 2**64:
            return whole
    if _DECIMAL.fullmatch(plain) is None:
        return _NOT_FINITE.get(text)
    number = float(plain)
    if math.isinf(number):
        return None  # as to Go: a number that no float can be is a string
    return int(number) if number.is_integer() and abs(number) < _EXACT else number


# `Loader.resolve` recognises numbers. A timestamp is a string, as JSON has no times, and so is `=`, of which
# PyYAML makes a type that its loader does not know.
_resolvers: dict[str, Any] = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag not in (_INT, _FLOAT, _TIMESTAMP, _VALUE)]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
Loader.yaml_implicit_resolvers = _resolvers
for _tag in (_INT, _FLOAT):
    Loader.add_constructor(_tag, Loader.construct_number)
Loader.add_constructor(_BOOL, Loader.construct_boolean)

"""YAML of a client that wants the API to do much work."""

import time
from collections.abc import Callable

import pytest

from serving import errors
from serving.embedded.apiserver.requests import bodies
from serving.embedded.apiserver.schema.depth import DEEPEST

ALIASES = b"a0: &a0 [x,x]\n" + b"".join(
    b"a%d: &a%d [*a%d,*a%d]\n" % (n, n, n - 1, n - 1) for n in range(1, 60)
)
MERGES = b"a: {" + b"<<: [{b: c}, {" * 40 + b"d: e" + b"}]" * 40 + b"}\n"
"""Merges of mappings in place, as there are no aliases: each level copies what it has."""


def by_indentation(levels: int) -> bytes:
    return "".join(f"{' ' * level}k:\n" for level in range(levels)).encode()


def by_compact_lists(levels: int) -> bytes:
    return b"k:\n" + b"- " * (levels - 1) + b"x\n"


def by_brackets(levels: int) -> bytes:
    return b"k: " + b"[" * (levels - 1) + b"]" * (levels - 1) + b"\n"


def as_json(levels: int) -> bytes:
    return b"[" * levels + b"]" * levels


def as_keys(levels: int) -> bytes:
    return b"? " * levels + b"x\n"


NESTED = [by_indentation, by_compact_lists, by_brackets, as_json]


@pytest.mark.parametrize("nested", NESTED)
def test_body_is_read_when_it_has_the_deepest_levels(nested: Callable[[int], bytes]) -> None:
    assert bodies.parse(nested(DEEPEST), bodies.YAML)


@pytest.mark.parametrize("levels", [DEEPEST + 1, 900, 1700])
@pytest.mark.parametrize("nested", [*NESTED, as_keys])
def test_body_is_refused_at_once_when_it_is_nested_too_deeply(
    nested: Callable[[int], bytes], levels: int
) -> None:
    begun = time.process_time()
    with pytest.raises(
        errors.ApiError, match=f"the body is nested more than {DEEPEST} levels deep"
    ) as caught:
        bodies.parse(nested(levels), bodies.YAML)
    assert caught.value.code == 400
    assert time.process_time() - begun < 1


@pytest.mark.parametrize(
    "text", [b"a: '%s'\n", b"a: |-\n  %s\n", b"a: b%s\n"], ids=["quoted", "block", "plain"]
)
def test_brackets_of_a_text_are_no_nesting(text: bytes) -> None:
    brackets = b"[{" * 600
    assert bodies.parse(text % brackets, bodies.YAML)["a"].endswith(brackets.decode())


def test_time_of_day_is_a_string_in_a_body() -> None:
    assert bodies.parse(b"at: 12:30:45\n", bodies.YAML) == {"at": "12:30:45"}


@pytest.mark.parametrize("media", bodies.YAMLS)
def test_body_is_refused_at_once_when_it_has_aliases(media: str) -> None:
    begun = time.process_time()
    with pytest.raises(errors.ApiError, match="aliases are not supported") as caught:
        bodies.parse(ALIASES, media)
    assert caught.value.code == 400
    assert time.process_time() - begun < 1


def test_body_is_read_at_once_when_it_has_merges_in_place() -> None:
    begun = time.process_time()
    assert bodies.parse(MERGES, bodies.YAML)["a"]["d"] == "e"
    assert time.process_time() - begun < 1

"""YAML of a client that wants the API to do much work."""

import time

import pytest

from serving import errors
from serving.embedded.apiserver.requests import bodies

ALIASES = b"a0: &a0 [x,x]\n" + b"".join(
    b"a%d: &a%d [*a%d,*a%d]\n" % (n, n, n - 1, n - 1) for n in range(1, 60)
)
MERGES = b"a: {" + b"<<: [{b: c}, {" * 40 + b"d: e" + b"}]" * 40 + b"}\n"
"""Merges of mappings in place, as there are no aliases: each level copies what it has."""


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

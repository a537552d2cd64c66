import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.protobuf import field
from serving.router.envoy import wire


def test_a_message_is_the_bytes_of_the_protobuf_documentation() -> None:
    # protobuf.dev: field 1 with varint 150 is 08 96 01, field 2 with "testing" is 12 07 74 65 73 74 69 6e 67.
    assert wire.encode("DirectResponseAction", {"status": 150}) == bytes.fromhex("089601")
    assert wire.encode("HeaderValue", {"value": "testing"}) == bytes.fromhex("120774657374696e67")


def test_a_field_that_is_not_in_the_table_is_a_mistake_when_it_is_written_and_nothing_when_it_is_read() -> (
    None
):
    with pytest.raises(KeyError):
        wire.encode("Route", {"decorator": {}})
    assert wire.decode("Route", field(12, b"")) == {}


def test_an_encoded_part_goes_into_the_whole_as_it_is() -> None:
    host = {"name": "a", "domains": ["a", "b"], "routes": [{"match": {"prefix": "/"}}]}
    parts = wire.encode("RouteConfiguration", {"virtual_hosts": [wire.encode("VirtualHost", host)]})
    assert parts == wire.encode("RouteConfiguration", {"virtual_hosts": [host]})


_text = st.text(max_size=20)
_header = st.fixed_dictionaries(
    {
        "header": st.fixed_dictionaries({"key": _text, "value": _text}),
    }
)
_arm = st.fixed_dictionaries(
    {
        "name": _text,
        "weight": st.integers(0, 2**32 - 1),
        "response_headers_to_add": st.lists(_header, min_size=1, max_size=3),
    }
)
_route = st.fixed_dictionaries(
    {
        "match": st.fixed_dictionaries({"prefix": _text}),
        "route": st.fixed_dictionaries(
            {
                "weighted_clusters": st.fixed_dictionaries(
                    {"clusters": st.lists(_arm, min_size=1, max_size=4), "use_hash_policy": st.booleans()}
                ),
                "timeout": st.integers(0, 10_000).map(lambda ms: f"{ms / 1000:g}s"),
            }
        ),
        "metadata": st.fixed_dictionaries(
            {"filter_metadata": st.dictionaries(_text, st.dictionaries(_text, _text), min_size=1, max_size=2)}
        ),
    }
)


@given(_route)
def test_what_is_written_is_read_back(route: wire.Json) -> None:
    assert wire.decode("Route", wire.encode("Route", route)) == route


@given(_route, st.data())
def test_a_message_that_ends_early_is_an_error_or_a_shorter_message(
    route: wire.Json, data: st.DataObject
) -> None:
    whole = wire.encode("Route", route)
    cut = whole[: data.draw(st.integers(0, len(whole) - 1))]
    with contextlib.suppress(ValueError):
        assert wire.encode("Route", wire.decode("Route", cut)) != whole

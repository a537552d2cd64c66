import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving import protobuf

_numbers = st.integers(1, 2**29 - 1)


@given(st.lists(st.tuples(_numbers, st.one_of(st.binary(max_size=300), st.integers(0, 2**64 - 1)))))
def test_fields_round_trip(fields: list[tuple[int, bytes | int]]) -> None:
    data = b"".join(
        protobuf.field(n, v) if isinstance(v, bytes) else protobuf.varint(n, v) for n, v in fields
    )
    assert list(protobuf.parts(data)) == fields


@given(_numbers, st.floats(allow_nan=False))
def test_a_double_round_trips(number: int, value: float) -> None:
    assert [(n, protobuf.real(v)) for n, v in protobuf.parts(protobuf.double(number, value))] == [
        (number, value)
    ]


@given(st.binary(max_size=200))
def test_any_bytes_are_fields_or_malformed(data: bytes) -> None:
    with contextlib.suppress(protobuf.Malformed):
        list(protobuf.parts(data))


def test_integers_are_two_complement_and_another_type_is_malformed() -> None:
    assert protobuf.integer(2**64 - 1) == -1
    for read, wrong in (
        (protobuf.integer, b"1"),
        (protobuf.real, 1),
        (protobuf.real, b"1"),
        (protobuf.text, 1),
    ):
        with pytest.raises(protobuf.Malformed):
            read(wrong)

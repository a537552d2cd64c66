import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving import protobuf

_numbers = st.integers(1, 2**29 - 1)


@given(st.lists(st.tuples(_numbers, st.one_of(st.binary(max_size=300), st.integers(0, 2**64 - 1)))))
def test_fields_are_read_back_as_they_were_written(fields: list[tuple[int, bytes | int]]) -> None:
    data = b"".join(
        protobuf.field(n, v) if isinstance(v, bytes) else protobuf.varint(n, v) for n, v in fields
    )
    assert list(protobuf.parts(data)) == fields


@given(_numbers, st.floats(allow_nan=False))
def test_a_double_is_read_back(number: int, value: float) -> None:
    assert [(n, protobuf.real(v)) for n, v in protobuf.parts(protobuf.double(number, value))] == [
        (number, value)
    ]


@given(st.binary(max_size=200))
def test_any_bytes_are_fields_or_malformed(data: bytes) -> None:
    with contextlib.suppress(protobuf.Malformed):
        list(protobuf.parts(data))


def test_a_negative_number_is_two_complement_and_what_is_of_another_sort_is_refused() -> None:
    assert protobuf.whole(2**64 - 1) == -1
    for read, wrong in (
        (protobuf.whole, b"1"),
        (protobuf.real, 1),
        (protobuf.real, b"1"),
        (protobuf.text, 1),
    ):
        with pytest.raises(protobuf.Malformed):
            read(wrong)

"""The headers of a gRPC response without a message."""

from urllib.parse import unquote

import grpc
from hypothesis import given
from hypothesis import strategies as st

from serving import grpc_status

CODES = {code.value[0]: code for code in grpc.StatusCode}


def test_statuses_have_the_numbers_of_grpc() -> None:
    names = ("UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "RESOURCE_EXHAUSTED")
    for name in (*names, "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE"):
        assert CODES[getattr(grpc_status, name)].name == name
    assert set(grpc_status.STATUS_OF.values()) <= CODES.keys()


def test_http_status_without_a_counterpart_is_unknown() -> None:
    assert grpc_status.headers(418, "teapot")["grpc-status"] == str(grpc.StatusCode.UNKNOWN.value[0])


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=512))
def test_message_is_printable_ascii_and_is_read_back(message: str) -> None:
    sent = grpc_status.headers(400, message)["grpc-message"]
    assert sent.isascii()
    assert sent.isprintable()
    assert unquote(sent) == message


def test_long_message_fits_into_the_headers_that_a_client_accepts() -> None:
    sent = grpc_status.headers(400, "\N{GRINNING FACE}" * 100_000)["grpc-message"]
    assert len(sent) < 7 * 1024
    assert unquote(sent).endswith("\N{GRINNING FACE}...")

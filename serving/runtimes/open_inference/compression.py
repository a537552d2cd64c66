"""Content codings of requests and responses: gzip and deflate, within bounds. Pure."""

import zlib

from serving.runtimes.open_inference.tensors import bad_request, too_large

_WBITS = {"gzip": 16 + zlib.MAX_WBITS, "deflate": zlib.MAX_WBITS}
"""zlib's window bits: 16 more is the gzip format; HTTP's deflate is the zlib format (RFC 9110 §8.4.1.2)."""


def accepted_encoding(header: str) -> str | None:
    """Return the first supported encoding of an Accept-Encoding header; None where there is none."""
    for part in header.lower().split(","):
        name, _, parameters = part.strip().partition(";")
        if name in _WBITS and parameters.replace(" ", "") not in {"q=0", "q=0.0", "q=0.00", "q=0.000"}:
            return name
    return None


def compressed(body: bytes, encoding: str) -> bytes:
    """Return the body in a supported encoding."""
    compressor = zlib.compressobj(level=1, wbits=_WBITS[encoding])
    return compressor.compress(body) + compressor.flush()


def decompressed(body: bytes, encoding: str, limit: int, *, header: str = "Content-Encoding") -> bytes:
    """Return the body without its encoding.

    Args:
        body: as it was received.
        encoding: value of the header that names the encoding.
        limit: the most bytes of the result.
        header: name of the header that names the encoding, for errors.

    Raises:
        errors.ApiError: 400, an unsupported encoding or a broken body; 413, one that is too large.
    """
    data = decompressed_within(body, encoding, limit, header=header)
    if data is None:
        raise too_large(f"must be at most {limit} bytes when decompressed", f"more than {limit}")
    return data


def decompressed_within(
    body: bytes, encoding: str, limit: int, *, header: str = "Content-Encoding"
) -> bytes | None:
    """Return the body without its encoding; None if the result has more than `limit` bytes.

    Raises:
        errors.ApiError: 400, an unsupported encoding or a broken body.
    """
    encoding = encoding.strip().lower()
    if encoding in {"", "identity"}:
        return body if len(body) <= limit else None
    if encoding not in _WBITS:
        raise bad_request(header, "must be gzip, deflate or identity", encoding)
    decompressor = zlib.decompressobj(wbits=_WBITS[encoding])
    try:
        data = decompressor.decompress(body, limit + 1)
    except zlib.error as error:
        raise bad_request("body", f"must be {encoding}", str(error)) from error
    if len(data) > limit:
        return None
    if not decompressor.eof or decompressor.unused_data:
        raise bad_request("body", f"must be one complete {encoding} stream", f"{len(body)} bytes")
    return data

"""Reads the responses of registries and token servers, and maps their errors to ours."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import aiohttp
from yarl import URL

from serving import clock, errors
from serving.system.network import http_headers

UNAVAILABLE = "RegistryUnavailable"
_SHOWN = 300
"""Most characters of a peer's message that one of our messages repeats."""


@contextmanager
def mapped(host: str, seconds: float) -> Iterator[None]:
    """Map the exceptions of aiohttp to ours.

    Args:
        host: sends the response, for the messages.
        seconds: the caller's limit without progress, which a TimeoutError stands for.

    Raises:
        errors.Permanent: `UntrustedCertificate`.
        errors.Temporary: `RegistryUnavailable`.
    """
    try:
        yield
    except aiohttp.ClientConnectorCertificateError as error:
        raise errors.Permanent("UntrustedCertificate", f"{host}: {error}") from error
    except TimeoutError as error:
        raise errors.Temporary(
            UNAVAILABLE, f"{host} sent no response, or hardly anything, for {seconds:g} s"
        ) from error
    except (aiohttp.ClientError, OSError) as error:
        raise errors.Temporary(UNAVAILABLE, f"{host}: {error or type(error).__name__}") from error


def raise_for_unavailable(host: str, response: aiohttp.ClientResponse) -> None:
    """Raise for a response that asks to try later.

    Raises:
        errors.Temporary: `RegistryUnavailable` for 408, 429 and 5xx.
    """
    if response.status in {408, 429} or response.status >= 500:
        raise errors.Temporary(
            UNAVAILABLE,
            f"{host} answered {response.status} {response.reason}",
            http_headers.retry_after(response.headers, clock.now()),
        )


def address(host: str, text: str) -> URL:
    """Parse an address from a peer.

    Raises:
        errors.Permanent: `RegistryRefused`.
    """
    try:
        return URL(text)
    except ValueError as error:
        raise errors.Permanent(
            "RegistryRefused", f"{host} sent an invalid address: {text[:_SHOWN]!r}"
        ) from error


def next_page(response: aiohttp.ClientResponse) -> URL | None:
    """Return the address of a list's next page (`Link: <...>; rel="next"`, RFC 8288), or None."""
    try:
        link = response.links["next"]["url"] if "next" in response.links else None
    except ValueError:  # not an address
        return None
    return response.url.join(URL(str(link))) if link else None


async def read_limited(response: aiohttp.ClientResponse, limit: int) -> bytes:
    """Read a whole body of at most `limit` bytes.

    Raises:
        errors.Permanent: `RegistryRefused`, it is longer.
    """
    body = bytearray()
    while chunk := await response.content.readany():
        body += chunk
        if len(body) > limit:
            response.close()
            raise errors.Permanent(
                "RegistryRefused", f"{response.url.host} sent a response of more than {limit} bytes"
            )
    return bytes(body)


def json_object(body: bytes) -> dict[str, Any]:
    """Return the JSON object in a body, or {} if it is something else, or cannot be written as UTF-8."""
    try:
        document = json.loads(body)
        # `"\ud800"` is JSON, but no character: our documents repeat parts of this one.
        json.dumps(document, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def explain(body: bytes) -> str:
    """Return the messages of an error body (distribution-spec, "Error Codes"), shortened."""
    listed = json_object(body).get("errors")
    if isinstance(listed, list):
        parts = [f"{e.get('code', '')} {e.get('message', '')}".strip() for e in listed if isinstance(e, dict)]
        return "; ".join(parts)[:_SHOWN]
    return body[:_SHOWN].decode(errors="replace")

"""What the client's modules share about HTTP: foreign errors, pauses between tries, and answers that are not
one.
"""

import asyncio
import email.utils
import json
import random
import re
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import aiohttp
from yarl import URL

from serving import clock, errors
from serving.images.registry.reference import is_loopback
from serving.settings import RegistrySettings

UNAVAILABLE = "RegistryUnavailable"
_NUMBER = re.compile(r"[0-9]{1,18}")
_LONGEST_PAUSE = 3600.0
"""Seconds; whoever waits for longer than that would seem to have stopped."""
_SHOWN = 300
"""Characters of a foreign message that are shown."""


@contextmanager
def mapped(host: str, seconds: float) -> Iterator[None]:
    """Turn what aiohttp raises into ours.

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
            UNAVAILABLE, f"{host} did not answer, or hardly sent anything, for {seconds:g} s"
        ) from error
    except (aiohttp.ClientError, OSError) as error:
        raise errors.Temporary(UNAVAILABLE, f"{host}: {error or type(error).__name__}") from error


def raise_for_unavailable(host: str, response: aiohttp.ClientResponse) -> None:
    """Refuse an answer that only says "later".

    Raises:
        errors.Temporary: `RegistryUnavailable` for 408, 429 and 5xx.
    """
    if response.status in {408, 429} or response.status >= 500:
        raise errors.Temporary(
            UNAVAILABLE,
            f"{host} answered {response.status} {response.reason}",
            retry_after(response.headers),
        )


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds that Retry-After asks for: a number, or a date (RFC 9110 §10.2.3); an hour at most."""
    text = headers.get("Retry-After", "")
    if (seconds := number(text)) is not None:
        return min(float(seconds), _LONGEST_PAUSE)
    try:
        left = (email.utils.parsedate_to_datetime(text) - clock.now()).total_seconds()
    except (ValueError, TypeError):
        return None
    return min(max(0.0, left), _LONGEST_PAUSE)


def number(text: str) -> int | None:
    """Return a number in a header, or None for anything else."""
    return int(text) if _NUMBER.fullmatch(text) else None


def address(host: str, text: str) -> URL:
    """Parse an address that a peer gave.

    Raises:
        errors.Permanent: `RegistryRefused`.
    """
    try:
        return URL(text)
    except ValueError as error:
        raise errors.Permanent("RegistryRefused", f"{host} names no address: {text[:_SHOWN]!r}") from error


def next_page(response: aiohttp.ClientResponse) -> URL | None:
    """Return where a list goes on (`Link: <...>; rel="next"`, RFC 8288)."""
    try:
        found = response.links["next"]["url"] if "next" in response.links else None
    except ValueError:  # an address that is none
        return None
    return response.url.join(URL(str(found))) if found else None


async def read_limited(response: aiohttp.ClientResponse, limit: int) -> bytes:
    """Read a whole body of at most `limit` bytes.

    Raises:
        errors.Permanent: `RegistryRefused`, it is longer.
    """
    parts = bytearray()
    while part := await response.content.readany():
        parts += part
        if len(parts) > limit:
            response.close()
            raise errors.Permanent(
                "RegistryRefused", f"{response.url.host} answered more than {limit} bytes where none need be"
            )
    return bytes(parts)


def json_object(body: bytes) -> dict[str, Any]:
    """Return the object of a body, or {} where it has none."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def explain(body: bytes) -> str:
    """Return what an error body says (distribution-spec, "Error Codes"), shortened."""
    found = json_object(body).get("errors")
    if isinstance(found, list):
        parts = [f"{e.get('code', '')} {e.get('message', '')}".strip() for e in found if isinstance(e, dict)]
        return "; ".join(parts)[:_SHOWN]
    return body[:_SHOWN].decode(errors="replace")


def may_be_plain(url: URL) -> bool:
    """Whether http is as good as https: the host is this machine."""
    return is_loopback(url.host or "")


def proxy_of(url: URL) -> str | None:
    """Return the proxy that the environment names for a URL (`HTTPS_PROXY`, `NO_PROXY`); never for this
    machine.
    """
    if may_be_plain(url) or urllib.request.proxy_bypass(url.host or ""):
        return None
    return urllib.request.getproxies().get(url.scheme)


class Patience:
    """Pauses between tries, and their end."""

    def __init__(self, settings: RegistrySettings) -> None:
        self._settings = settings
        self._failed = 0

    def progress(self) -> None:
        """Begin to count anew: something came through."""
        self._failed = 0

    async def wait(self, error: errors.Temporary) -> None:
        """Sleep before the next try.

        Raises:
            errors.Temporary: the error itself, where trying again is for somebody else.
        """
        self._failed += 1
        asked = error.retry_after or 0.0
        if (
            error.reason != UNAVAILABLE
            or self._failed >= self._settings.attempts
            or asked > self._settings.retry_after_cap_seconds
        ):
            raise error
        delay = min(
            self._settings.backoff_base_seconds * 2.0 ** (self._failed - 1),
            self._settings.backoff_cap_seconds,
        )
        await asyncio.sleep(max(asked, delay * random.uniform(0.5, 1.0)))  # noqa: S311 spreads load, no secret

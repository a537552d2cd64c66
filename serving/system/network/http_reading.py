"""Reads pages of peers that are not trusted, such as replicas: limited size and time, no redirects.

aiohttp unpacks a compressed page before anyone can count its bytes, so no page may be compressed.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import aiohttp
from yarl import URL

from serving import errors

_ENCODING = "Content-Encoding"
_PLAIN = {"Accept-Encoding": "identity"}


class UnreadablePage(errors.Unavailable):
    """An answer that is too long, or compressed. A retry would hardly get a different one."""


@dataclass(frozen=True, slots=True)
class Page:
    """An answer that was read to its end; a redirect is an answer like any other."""

    status: int
    body: bytes

    @property
    def text(self) -> str:
        """The body; bytes that are not UTF-8 are replaced."""
        return self.body.decode(errors="replace")


def session(
    base_url: str | None = None,
    connector: aiohttp.BaseConnector | None = None,
    proxy: str | None = None,
) -> aiohttp.ClientSession:
    """Return a session for `get`, without cookies; must be called in a running event loop.

    Args:
        base_url: what relative addresses are relative to.
        connector: opens the connections.
        proxy: URL of the proxy for all requests.
    """
    return aiohttp.ClientSession(
        base_url=base_url,
        connector=connector,
        proxy=proxy,
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
    )


async def get(
    opened: aiohttp.ClientSession,
    url: str | URL,
    *,
    limit: int,
    seconds: float,
    query: Mapping[str, str] | None = None,
) -> Page:
    """Read one page; redirects are not followed, as a peer could send us to any address that we can reach.

    Args:
        opened: a session from `session`.
        url: the page's address.
        limit: most bytes of the body.
        seconds: most seconds until its last byte.
        query: parameters to add to the address.

    Raises:
        UnreadablePage: a longer answer, or a compressed one.
        errors.Unavailable: no answer in time, or the address is invalid. The message has no credentials of
            the address.
    """
    timeout = aiohttp.ClientTimeout(total=seconds)
    try:
        async with opened.get(
            url, params=query, headers=_PLAIN, timeout=timeout, allow_redirects=False
        ) as response:
            if (encoding := response.headers.get(_ENCODING, "identity").lower()) != "identity":
                raise UnreadablePage(f"{_ENCODING}: must be identity, got {encoding[:40]!r}")
            body = bytearray()
            async for part in response.content.iter_any():
                body += part
                if len(body) > limit:
                    raise UnreadablePage(f"an answer of more than {limit} bytes")
            return Page(response.status, bytes(body))
    except TimeoutError as error:
        raise errors.Unavailable(f"no answer within {seconds:g} s") from error
    except (aiohttp.InvalidURL, aiohttp.NonHttpUrlClientError, UnicodeError):
        # Their messages, and a traceback of them, repeat the address with its password.
        raise errors.Unavailable("the address is not a valid HTTP URL") from None
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise errors.Unavailable(f"{type(error).__name__}: {error}") from error

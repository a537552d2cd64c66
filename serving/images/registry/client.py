"""An HTTP client for any number of registries: authorization, redirects, retries and deadlines.

`blobs`, `uploads`, `manifests` and `referrers` make the requests. Memory is bounded: response bodies are
streamed, or have a limit.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import TracebackType

import aiohttp
from yarl import URL

from serving import errors
from serving.images.documents import oci
from serving.images.registry import responses, retries
from serving.images.registry.auth.credentials import Credentials
from serving.images.registry.auth.tokens import RegistryTokens
from serving.images.registry.reference import Reference
from serving.settings import DEFAULTS, RegistrySettings
from serving.system.network import proxies
from serving.system.network.addresses import is_loopback

_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_MAX_REDIRECTS = 5
_BODY_CHUNK = 256 * 1024
"""Bytes of a request body written at once; an upload's progress is known in these steps."""


@dataclass(frozen=True)
class RegistryRequest:
    """One request."""

    method: str
    target: Reference
    """Names the registry, the repository and the login."""
    path: str = ""
    """Below /v2/REPOSITORY/."""
    url: URL | None = None
    """A whole address, in place of `path`: an upload has one, as has the next page of a list."""
    push: bool = False
    """Whether the token must allow to push."""
    also_from: str = ""
    """Another repository, without the host, that the token must allow to pull from; empty for none."""
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Sequence[bytes | memoryview] = ()
    """Parts that are sent one after another: to join them would hold the body in memory twice."""
    timeout: float | None = None
    """Most seconds from the body's last progress to the response; None for `stall_seconds`."""

    @property
    def scopes(self) -> frozenset[str]:
        """Scopes of the token."""
        own = f"repository:{self.target.repository}:{'pull,push' if self.push else 'pull'}"
        return frozenset({own, f"repository:{self.also_from}:pull"} if self.also_from else {own})


@dataclass(frozen=True)
class RegistryResponse:
    """A response with its whole body."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    url: URL
    """The address that answered, after redirects."""
    next_page: URL | None
    """The next page of a list; None if this is the last."""

    def location(self) -> URL | None:
        """The absolute address in `Location`; None without this header."""
        text = self.headers.get("Location")
        return self.url.join(responses.address(str(self.url.host), text)) if text else None


class _PacedBody:
    """A request's body, which extends the time limit while the peer takes it fast enough."""

    def __init__(
        self, parts: Sequence[bytes | memoryview], limit: asyncio.Timeout, seconds: float, slowest: float
    ) -> None:
        """`limit` is extended by `seconds` whenever the peer has taken `seconds * slowest` bytes."""
        self._parts = parts
        self._limit = limit
        self._seconds = seconds
        self._bytes_per_limit = seconds * slowest
        self.is_answered = False
        """Whether the request has ended, and `limit` with it, so that it must not be extended: a response
        may come before the last chunk is written."""

    async def chunks(self) -> AsyncIterator[memoryview]:
        """Yield the parts in chunks of at most `_BODY_CHUNK` bytes."""
        moved = 0  # bytes since the limit was last extended
        for part in self._parts:
            for start in range(0, len(part), _BODY_CHUNK):
                chunk = memoryview(part)[start : start + _BODY_CHUNK]
                yield chunk
                moved += len(chunk)
                if moved >= self._bytes_per_limit:
                    moved = 0
                    self._extend_limit()
        self._extend_limit()

    def _extend_limit(self) -> None:
        if not self.is_answered:
            self._limit.reschedule(asyncio.get_running_loop().time() + self._seconds)


class Registry:
    """An open client; use with `async with`.

    Args:
        credentials: of the user, by registry.
        settings: deadlines, sizes and retries.
    """

    def __init__(self, credentials: Credentials, settings: RegistrySettings = DEFAULTS.registry) -> None:
        self.settings = settings
        self._credentials = credentials
        self._session: aiohttp.ClientSession | None = None
        self._tokens: RegistryTokens | None = None

    async def __aenter__(self) -> "Registry":
        self._session = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=self.settings.connect_seconds),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            # aiohttp accepts compressed responses by default, but bodies are read as they arrive.
            headers={"User-Agent": "slipway", "Accept-Encoding": "identity"},
            read_bufsize=self.settings.piece_bytes,
        )
        self._tokens = RegistryTokens(self._session, self._credentials, self.settings)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._session is not None
        await self._session.close()

    async def send(self, request: RegistryRequest, *, retry: bool = True) -> RegistryResponse:
        """Send a request and read the response, with retries; the body must be repeatable.

        Raises:
            errors.Permanent: those of `stream`; `RegistryRefused`, a response that is too long.
            errors.Temporary: those of `stream`; `RegistryUnavailable` after the last try.
        """
        tries = retries.RegistryRetries(self.settings)
        while True:
            try:
                return await self._send_once(request)
            except errors.Temporary as error:
                if not retry:
                    raise
                await tries.wait(error)

    async def _send_once(self, request: RegistryRequest) -> RegistryResponse:
        async with self.stream(request) as response:
            return await self.read(request, response)

    async def read(self, request: RegistryRequest, response: aiohttp.ClientResponse) -> RegistryResponse:
        """Read the body of a response.

        Raises:
            errors.Permanent: `RegistryRefused`, it is too long.
            errors.Temporary: `RegistryUnavailable`.
        """
        body = await self._read_body(request, response)
        return RegistryResponse(
            response.status, response.headers, body, response.url, responses.next_page(response)
        )

    async def _read_body(self, request: RegistryRequest, response: aiohttp.ClientResponse) -> bytes:
        with responses.mapped(request.target.host, self.settings.stall_seconds):
            async with asyncio.timeout(self.settings.stall_seconds):
                return await responses.read_limited(response, oci.MAX_MANIFEST)

    @asynccontextmanager
    async def stream(self, request: RegistryRequest) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send a request without retries and yield the response, whose body is unread.

        Raises:
            errors.Permanent: `Unauthorized`, `UntrustedCertificate`, `InsecureRegistry`; `RegistryRefused`, a
                malformed address in a response; those of `Credentials.login`.
            errors.Temporary: `RegistryUnavailable`; those of `Credentials.login`.
        """
        response = await self._authorized(request)
        try:
            await self._check(request, response)
            yield response
        finally:
            response.release()

    async def _authorized(self, request: RegistryRequest) -> aiohttp.ClientResponse:
        """Send a request, and once more with a new Authorization header if the registry answers 401."""
        assert self._tokens is not None
        header = await self._tokens.header(request.target, request.scopes)
        response = await self._follow(request, header)
        if response.status != 401 or not self._is_own(request, response.url):
            return response
        challenges = response.headers.getall("WWW-Authenticate", [])
        response.release()
        header = await self._tokens.renew(request.target, request.scopes, challenges, header)
        return await self._follow(request, header)

    async def _follow(self, request: RegistryRequest, header: str) -> aiohttp.ClientResponse:
        """Send a request with an Authorization header, and follow redirects of GET and HEAD.

        Only the registry itself gets the header.
        """
        url = self._secured(request, request.url or self.base(request.target) / request.path)
        for _ in range(_MAX_REDIRECTS):
            headers = dict(request.headers)
            if header and self._is_own(request, url):
                headers["Authorization"] = header
            response = await self._transmit(request, url, headers)
            location = response.headers.get("Location")
            if response.status not in _REDIRECTS or request.method not in {"GET", "HEAD"} or not location:
                return response
            response.release()
            url = self._secured(request, url.join(responses.address(request.target.host, location)))
        raise errors.Temporary(responses.UNAVAILABLE, f"{request.target.host} redirects too often")

    async def _transmit(
        self, request: RegistryRequest, url: URL, headers: dict[str, str]
    ) -> aiohttp.ClientResponse:
        """Send a request to an address, without redirects, and return the response with an unread body."""
        assert self._session is not None
        seconds = request.timeout or self.settings.stall_seconds
        if request.body or request.method in {"POST", "PUT", "PATCH"}:
            headers["Content-Length"] = str(sum(len(part) for part in request.body))
        with responses.mapped(request.target.host, seconds):
            async with asyncio.timeout(seconds) as limit:
                body = _PacedBody(request.body, limit, seconds, self.settings.slowest_bytes_per_second)
                try:
                    return await self._session.request(
                        request.method,
                        url,
                        headers=headers,
                        data=body.chunks() if request.body else None,
                        allow_redirects=False,
                        proxy=proxies.proxy_of(url),
                    )
                finally:
                    body.is_answered = True

    def base(self, target: Reference) -> URL:
        """Return `https://HOST/v2/REPOSITORY`, or http if the host is this machine."""
        scheme = "http" if target.loopback else "https"
        return URL(f"{scheme}://{target.api_host}/v2/{target.repository}")

    def _is_own(self, request: RegistryRequest, url: URL) -> bool:
        """Whether an address is one of the request's registry: the same scheme, host and port."""
        return url.origin() == self.base(request.target).origin()

    def _secured(self, request: RegistryRequest, url: URL) -> URL:
        """Return an address with TLS. A registry behind a proxy that ends TLS may name itself with http.

        Raises:
            errors.Permanent: `InsecureRegistry`, another host without TLS.
        """
        if url.scheme == "https" or request.target.loopback or is_loopback(url.host or ""):
            return url
        own = self.base(request.target)
        if url.scheme == "http" and url.host == own.host:
            return own.origin().join(url.relative())
        raise errors.Permanent(
            "InsecureRegistry", f"{request.target.host} redirects to {url.host} without TLS: refused"
        )

    async def _check(self, request: RegistryRequest, response: aiohttp.ClientResponse) -> None:
        """Raise for a response that asks to try later (408, 429, 5xx), and for 401 and 403."""
        responses.raise_for_unavailable(request.target.host, response)
        if response.status not in {401, 403}:
            return
        if not self._is_own(request, response.url):
            # The signed address of an object store has expired: the registry gives a new one at the next try.
            raise errors.Temporary(responses.UNAVAILABLE, f"{response.url.host} answered {response.status}")
        body = await self._read_body(request, response)
        allowed = "push to" if request.push else "pull from"
        raise errors.Permanent(
            "Unauthorized",
            f"not allowed to {allowed} {request.target.name} ({response.status}): {responses.explain(body)}",
        )


def refused(request: RegistryRequest, response: RegistryResponse) -> errors.Permanent:
    """Return the error for a response that the protocol does not foresee."""
    return errors.Permanent(
        "RegistryRefused",
        f"{request.target.host}: {request.method} {response.url.path} answered {response.status}: "
        f"{responses.explain(response.body)}",
    )

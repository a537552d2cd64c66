"""One client for any number of registries: requests with authorization, redirects, retries and deadlines.

What the requests mean is in `blobs`, `uploads`, `manifests` and `referrers`. Memory is bounded: bodies that
are read whole have a limit, others are streamed.
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
from serving.images.registry import responses
from serving.images.registry.auth.credentials import Credentials
from serving.images.registry.auth.tokens import Tokens
from serving.images.registry.reference import Reference
from serving.settings import DEFAULTS, RegistrySettings

_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_MAX_REDIRECTS = 5
_WRITE_PIECE = 256 * 1024
"""Bytes of a body given to the socket at a time; how progress of an upload is seen."""


@dataclass(frozen=True)
class Call:
    """One request."""

    method: str
    target: Reference
    """Whose registry, repository and login."""
    path: str = ""
    """Below /v2/REPOSITORY/; or `url`."""
    url: URL | None = None
    push: bool = False
    """Whether the token must allow to push."""
    also_from: str = ""
    """Another repository that the token must allow to pull from."""
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Sequence[bytes | memoryview] = ()
    """In parts, so that it lies in memory once."""
    patience: float | None = None
    """Seconds until it must be answered, counted from the body's last progress; None: the setting."""

    @property
    def scopes(self) -> frozenset[str]:
        """What the token must allow."""
        own = f"repository:{self.target.repository}:{'pull,push' if self.push else 'pull'}"
        return frozenset({own, f"repository:{self.also_from}:pull"} if self.also_from else {own})


@dataclass(frozen=True)
class Answer:
    """A whole answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    url: URL
    next_page: URL | None

    def location(self) -> URL | None:
        """Where `Location` points, made absolute."""
        text = self.headers.get("Location")
        return self.url.join(responses.address(str(self.url.host), text)) if text else None


class _Body:
    """A request's body on its way; whoever takes it fast enough gets more time."""

    def __init__(
        self, parts: Sequence[bytes | memoryview], limit: asyncio.Timeout, seconds: float, slowest: float
    ) -> None:
        self._parts = parts
        self._limit = limit
        self._seconds = seconds
        self._enough = seconds * slowest
        self.answered = False
        """The limit is over; an answer may come before the last piece is known to be gone."""

    async def pieces(self) -> AsyncIterator[memoryview]:
        """Yield the parts in pieces."""
        moved = 0
        for part in self._parts:
            for start in range(0, len(part), _WRITE_PIECE):
                piece = memoryview(part)[start : start + _WRITE_PIECE]
                yield piece
                moved += len(piece)
                if moved >= self._enough:
                    moved = 0
                    self._more_time()
        self._more_time()

    def _more_time(self) -> None:
        if not self.answered:
            self._limit.reschedule(asyncio.get_running_loop().time() + self._seconds)


class Registry:
    """An open client; use with `async with`.

    Args:
        credentials: who to be.
        settings: deadlines, sizes and retries.
    """

    def __init__(self, credentials: Credentials, settings: RegistrySettings = DEFAULTS.registry) -> None:
        self.settings = settings
        self._credentials = credentials
        self._session: aiohttp.ClientSession | None = None
        self._tokens: Tokens | None = None

    async def __aenter__(self) -> "Registry":
        self._session = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=self.settings.connect_seconds),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            headers={"User-Agent": "slipway"},
            read_bufsize=self.settings.piece_bytes,
        )
        self._tokens = Tokens(self._session, self._credentials, self.settings)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._session is not None
        await self._session.close()

    async def ask(self, call: Call, *, retry: bool = True) -> Answer:
        """Send a request and read the answer, again where that can help; the body must be sendable again.

        Raises:
            errors.Permanent: `Unauthorized`, `UntrustedCertificate`, `RegistryRefused` (an answer without
                end).
            errors.Temporary: `RegistryUnavailable` after the last try.
        """
        patience = responses.Patience(self.settings)
        while True:
            try:
                return await self._ask(call)
            except errors.Temporary as error:
                if not retry:
                    raise
                await patience.wait(error)

    async def _ask(self, call: Call) -> Answer:
        async with self.stream(call) as response:
            body = await self._whole(call, response)
            return Answer(
                response.status, response.headers, body, response.url, responses.next_page(response)
            )

    async def _whole(self, call: Call, response: aiohttp.ClientResponse) -> bytes:
        with responses.mapped(call.target.host, self.settings.stall_seconds):
            async with asyncio.timeout(self.settings.stall_seconds):
                return await responses.read_limited(response, oci.MAX_MANIFEST)

    @asynccontextmanager
    async def stream(self, call: Call) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send a request once and give its answer, whose body is not read yet.

        Raises:
            errors.Permanent: `Unauthorized`, `UntrustedCertificate`, `InsecureRegistry`.
            errors.Temporary: `RegistryUnavailable`.
        """
        response = await self._authorized(call)
        try:
            await self._check(call, response)
            yield response
        finally:
            response.release()

    async def _authorized(self, call: Call) -> aiohttp.ClientResponse:
        assert self._tokens is not None
        header = await self._tokens.header(call.target, call.scopes)
        response = await self._follow(call, header)
        if response.status != 401 or not self._own(call, response.url):
            return response
        asked = response.headers.getall("WWW-Authenticate", [])
        response.release()
        header = await self._tokens.renew(call.target, call.scopes, asked, header)
        return await self._follow(call, header)

    async def _follow(self, call: Call, header: str) -> aiohttp.ClientResponse:
        """Send, and go where a download is redirected to: another host never sees our authorization."""
        url = self._secured(call, call.url or self.base(call.target) / call.path)
        for _ in range(_MAX_REDIRECTS):
            headers = dict(call.headers)
            if header and self._own(call, url):
                headers["Authorization"] = header
            response = await self._send(call, url, headers)
            to = response.headers.get("Location")
            if response.status not in _REDIRECTS or call.method not in {"GET", "HEAD"} or not to:
                return response
            response.release()
            url = self._secured(call, url.join(responses.address(call.target.host, to)))
        raise errors.Temporary(responses.UNAVAILABLE, f"{call.target.host} redirects without end")

    async def _send(self, call: Call, url: URL, headers: dict[str, str]) -> aiohttp.ClientResponse:
        assert self._session is not None
        seconds = call.patience or self.settings.stall_seconds
        if call.body or call.method in {"POST", "PUT", "PATCH"}:
            headers["Content-Length"] = str(sum(len(part) for part in call.body))
        with responses.mapped(call.target.host, seconds):
            async with asyncio.timeout(seconds) as limit:
                body = _Body(call.body, limit, seconds, self.settings.slowest_bytes_per_second)
                try:
                    return await self._session.request(
                        call.method,
                        url,
                        headers=headers,
                        data=body.pieces() if call.body else None,
                        allow_redirects=False,
                        proxy=responses.proxy_of(url),
                    )
                finally:
                    body.answered = True

    def base(self, target: Reference) -> URL:
        """Return `https://HOST/v2/REPOSITORY`, or http where the host is this machine."""
        scheme = "http" if target.loopback else "https"
        return URL(f"{scheme}://{target.api_host}/v2/{target.repository}")

    def _own(self, call: Call, url: URL) -> bool:
        return url.origin() == self.base(call.target).origin()

    def _secured(self, call: Call, url: URL) -> URL:
        """Refuse to leave TLS. A registry behind a proxy that ends TLS may name itself with http: that means
        itself.
        """
        if url.scheme == "https" or call.target.loopback or responses.may_be_plain(url):
            return url
        own = self.base(call.target)
        if url.scheme == "http" and url.host == own.host:
            return own.origin().join(url.relative())
        raise errors.Permanent(
            "InsecureRegistry", f"{call.target.host} sends us to {url.host} without TLS: refused"
        )

    async def _check(self, call: Call, response: aiohttp.ClientResponse) -> None:
        responses.raise_for_unavailable(call.target.host, response)
        if response.status not in {401, 403}:
            return
        if not self._own(call, response.url):
            # A signed address of an object store that has run out: asked for anew, the registry gives another one.
            raise errors.Temporary(responses.UNAVAILABLE, f"{response.url.host} answered {response.status}")
        body = await self._whole(call, response)
        allowed = "push to" if call.push else "pull from"
        raise errors.Permanent(
            "Unauthorized",
            f"not allowed to {allowed} {call.target.name} ({response.status}): {responses.explain(body)}",
        )


def refused(call: Call, answer: Answer) -> errors.Permanent:
    """Return the error for an answer that no rule of the protocol explains."""
    return errors.Permanent(
        "RegistryRefused",
        f"{call.target.host}: {call.method} {answer.url.path} answered {answer.status}: {responses.explain(answer.body)}",
    )

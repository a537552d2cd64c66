"""Authorization headers: Basic, or Bearer tokens of the token server that the registry names.

A token is cached by repository and scopes until it nearly expires. One that the registry refuses is replaced
by one with the scopes of the registry's new challenge (a mount needs two repositories in one token).
https://distribution.github.io/distribution/spec/auth/token/ and .../oauth/.
"""

import asyncio
import base64
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import aiohttp

from serving import clock, errors
from serving.images.registry import responses
from serving.images.registry.auth import challenge as challenges
from serving.images.registry.auth.challenge import Challenge
from serving.images.registry.auth.credentials import Credentials
from serving.images.registry.auth.docker_config import Login
from serving.images.registry.reference import Reference
from serving.settings import RegistrySettings
from serving.system.network import proxies
from serving.system.network.addresses import is_loopback

_USED_SHARE = 0.8
"""Of a token's lifetime: the rest allows for the duration of a request and for clocks that differ."""
_LONGEST = 30 * 86_400
"""Seconds; longer lifetimes are ignored as mistakes."""
_DEFAULT_LIFETIME = 60.0
"""Seconds; of a token whose server names no lifetime (distribution's token specification)."""
_MAX_ANSWER = 256 * 1024
"""Most bytes of an answer of a token server."""


@dataclass(frozen=True)
class _CachedHeader:
    header: str
    """Value of the Authorization header."""
    expires_at: float
    """By `clock.monotonic`; infinite for Basic."""
    scopes: frozenset[str]
    """Scopes of the token: those of the request, and those that the registry has asked for."""


class RegistryTokens:
    """The authorization headers of one client, for any number of registries."""

    def __init__(
        self, session: aiohttp.ClientSession, credentials: Credentials, settings: RegistrySettings
    ) -> None:
        self._session = session
        self._credentials = credentials
        self._settings = settings
        self._challenges: dict[str, Challenge] = {}
        """The latest challenge by the registry's host."""
        self._cache: dict[tuple[str, frozenset[str]], _CachedHeader] = {}
        """By the name of the repository and the scopes of the request."""
        self._locks: defaultdict[tuple[str, frozenset[str]], asyncio.Lock] = defaultdict(asyncio.Lock)

    async def header(self, target: Reference, scopes: frozenset[str]) -> str:
        """Return the Authorization header, or '' while this registry has sent no challenge.

        `scopes` are those that the request needs. Raises as `renew`.
        """
        key = (target.name, scopes)
        challenge = self._challenges.get(target.host)
        if challenge is None:
            return ""
        async with self._locks[key]:
            cached = self._cache.get(key)
            if cached is None or cached.expires_at <= clock.monotonic():
                cached = await self._fetch(target, challenge, cached.scopes if cached else scopes)
                self._cache[key] = cached
            return cached.header

    async def renew(
        self, target: Reference, scopes: frozenset[str], headers: Sequence[str], rejected: str
    ) -> str:
        """Return a new header after the registry refused one.

        Args:
            target: the repository.
            scopes: those that the request needs.
            headers: the values of `WWW-Authenticate`.
            rejected: the header that was refused, or ''.

        Raises:
            errors.Permanent: `Unauthorized`, `UntrustedCertificate`; `RegistryRefused`, a malformed address
                of the token server or an answer that is too long; those of `Credentials.login`.
            errors.Temporary: `RegistryUnavailable`, of the token server; those of `Credentials.login`.
        """
        challenge = _choose(target, headers)
        self._challenges[target.host] = challenge
        key = (target.name, scopes)
        async with self._locks[key]:
            cached = self._cache.get(key)
            # Another header is newer: a concurrent request has renewed it.
            if cached is None or cached.header == rejected:
                cached = await self._fetch(target, challenge, scopes | challenge.scopes)
                self._cache[key] = cached
            return cached.header

    async def _fetch(self, target: Reference, challenge: Challenge, scopes: frozenset[str]) -> _CachedHeader:
        login = await self._credentials.login(target)
        if challenge.scheme == "basic":
            if login is None or not login.username:
                raise errors.Permanent(
                    "Unauthorized", f"{target.host} requires a login, and the configuration has none for it"
                )
            return _CachedHeader(_basic(login), float("inf"), scopes)
        return await self._token(target, challenge, login, scopes)

    async def _token(
        self, target: Reference, challenge: Challenge, login: Login | None, scopes: frozenset[str]
    ) -> _CachedHeader:
        """Ask the token server: by POST with an identity token (OAuth2), else by GET."""
        realm = responses.address(target.host, challenge.parameters["realm"])
        if realm.scheme != "https" and not is_loopback(realm.host or ""):
            raise errors.Permanent(
                "Unauthorized", f"{target.host} sends logins to {realm.host} without TLS: refused"
            )
        fields = [("service", challenge.parameters["service"])] if "service" in challenge.parameters else []
        ordered = sorted(scopes)
        proxy = proxies.proxy_of(realm)
        with responses.mapped(str(realm.host), self._settings.stall_seconds):
            async with asyncio.timeout(self._settings.stall_seconds):
                if login is not None and login.identity_token:
                    form = [*fields, ("scope", " ".join(ordered)), ("client_id", "slipway")]
                    form += [("grant_type", "refresh_token"), ("refresh_token", login.identity_token)]
                    request = self._session.post(realm, data=dict(form), allow_redirects=False, proxy=proxy)
                else:
                    headers = {"Authorization": _basic(login)} if login else {}
                    query = [*realm.query.items(), *fields, *(("scope", scope) for scope in ordered)]
                    request = self._session.get(
                        realm.with_query(query), headers=headers, allow_redirects=False, proxy=proxy
                    )
                async with request as response:
                    body = await responses.read_limited(response, _MAX_ANSWER)
        responses.raise_for_unavailable(str(realm.host), response)
        if response.status != 200:
            raise errors.Permanent(
                "Unauthorized",
                f"{realm.host} gave no token for {target.name} ({response.status}): "
                f"{responses.explain(body)}",
            )
        return self._parse(target, body, scopes)

    def _parse(self, target: Reference, body: bytes, scopes: frozenset[str]) -> _CachedHeader:
        answer: Any = responses.json_object(body)
        token = answer.get("token") or answer.get("access_token")
        if not isinstance(token, str) or not token.isprintable():
            raise errors.Permanent("Unauthorized", f"the token server of {target.host} sent no token")
        lifetime = answer.get("expires_in")
        is_known = isinstance(lifetime, int | float) and 0 <= lifetime < _LONGEST
        seconds = float(lifetime) if is_known else _DEFAULT_LIFETIME
        return _CachedHeader(f"Bearer {token}", clock.monotonic() + seconds * _USED_SHARE, scopes)


def _choose(target: Reference, headers: Sequence[str]) -> Challenge:
    """Return the first usable challenge of Bearer, else of Basic."""
    offered = [challenge for header in headers for challenge in challenges.parse(header)]
    for challenge in offered:
        if challenge.scheme == "bearer" and challenge.parameters.get("realm"):
            return challenge
    for challenge in offered:
        if challenge.scheme == "basic":
            return challenge
    raise errors.Permanent(
        "Unauthorized", f"{target.host} asks for neither Basic nor Bearer, but {list(headers)}"
    )


def _basic(login: Login) -> str:
    return "Basic " + base64.b64encode(f"{login.username}:{login.password}".encode()).decode()

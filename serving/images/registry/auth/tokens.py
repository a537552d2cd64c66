"""Authorization headers: Basic, or Bearer tokens from the server that the registry names.

A token is kept per registry and set of scopes until its time is nearly over; one that the registry refuses is dropped
and asked for again with what the registry's new challenge wants (a mount wants two repositories in one token).
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

_USED_SHARE = 0.8
"""Of a token's lifetime: the rest is for the request that it is sent with, and for clocks that differ."""
_LONGEST = 30 * 86_400
"""Seconds; a longer lifetime is a mistake."""
_MAX_ANSWER = 256 * 1024


@dataclass(frozen=True)
class _Held:
    header: str
    until: float
    scopes: frozenset[str]


class Tokens:
    """The headers of one client, for any number of registries."""

    def __init__(
        self, session: aiohttp.ClientSession, credentials: Credentials, settings: RegistrySettings
    ) -> None:
        self._session = session
        self._credentials = credentials
        self._settings = settings
        self._asked: dict[str, Challenge] = {}
        self._held: dict[tuple[str, frozenset[str]], _Held] = {}
        self._locks: defaultdict[tuple[str, frozenset[str]], asyncio.Lock] = defaultdict(asyncio.Lock)

    async def header(self, target: Reference, scopes: frozenset[str]) -> str:
        """Return what to send as Authorization, or '' while this registry has not asked for anything."""
        key = (target.name, scopes)
        asked = self._asked.get(target.host)
        if asked is None:
            return ""
        async with self._locks[key]:
            held = self._held.get(key)
            if held is None or held.until <= clock.monotonic():
                held = await self._fetch(target, asked, held.scopes if held else scopes)
                self._held[key] = held
            return held.header

    async def renew(
        self, target: Reference, scopes: frozenset[str], headers: Sequence[str], rejected: str
    ) -> str:
        """Return a new header after the registry refused one.

        Args:
            target: the repository.
            scopes: what the request needs.
            headers: the values of `WWW-Authenticate`.
            rejected: what was sent, or ''.

        Raises:
            errors.Permanent: `Unauthorized`.
            errors.Temporary: `RegistryUnavailable`, the token server did not answer.
        """
        asked = _choose(target, headers)
        self._asked[target.host] = asked
        key = (target.name, scopes)
        async with self._locks[key]:
            held = self._held.get(key)
            if held is None or held.header == rejected:
                held = await self._fetch(target, asked, scopes | asked.scopes)
                self._held[key] = held
            return held.header

    async def _fetch(self, target: Reference, asked: Challenge, scopes: frozenset[str]) -> _Held:
        login = await self._credentials.login(target)
        if asked.scheme == "basic":
            if login is None or not login.username:
                raise errors.Permanent(
                    "Unauthorized", f"{target.host} wants a login, and the configuration has none for it"
                )
            return _Held(_basic(login), float("inf"), scopes)
        return await self._token(target, asked, login, scopes)

    async def _token(
        self, target: Reference, asked: Challenge, login: Login | None, scopes: frozenset[str]
    ) -> _Held:
        realm = responses.address(target.host, asked.parameters["realm"])
        if realm.scheme != "https" and not responses.may_be_plain(realm):
            raise errors.Permanent(
                "Unauthorized", f"{target.host} sends logins to {realm.host} without TLS: refused"
            )
        fields = [("service", asked.parameters["service"])] if "service" in asked.parameters else []
        ordered = sorted(scopes)
        with responses.mapped(str(realm.host), self._settings.stall_seconds):
            async with asyncio.timeout(self._settings.stall_seconds):
                if login is not None and login.identity_token:
                    form = [*fields, ("scope", " ".join(ordered)), ("client_id", "slipway")]
                    form += [("grant_type", "refresh_token"), ("refresh_token", login.identity_token)]
                    request = self._session.post(realm, data=dict(form), allow_redirects=False)
                else:
                    sent = {"Authorization": _basic(login)} if login else {}
                    query = [*realm.query.items(), *fields, *(("scope", scope) for scope in ordered)]
                    request = self._session.get(realm.with_query(query), headers=sent, allow_redirects=False)
                async with request as response:
                    body = await responses.read_limited(response, _MAX_ANSWER)
        responses.raise_for_unavailable(str(realm.host), response)
        if response.status != 200:
            raise errors.Permanent(
                "Unauthorized",
                f"{realm.host} gave no token for {target.name} ({response.status}): {responses.explain(body)}",
            )
        return self._parse(target, body, scopes)

    def _parse(self, target: Reference, body: bytes, scopes: frozenset[str]) -> _Held:
        answer: Any = responses.json_object(body)
        token = answer.get("token") or answer.get("access_token")
        if not isinstance(token, str) or not token.isprintable():
            raise errors.Permanent(
                "Unauthorized", f"the token server of {target.host} answered without a token"
            )
        lifetime = answer.get("expires_in")
        said = isinstance(lifetime, int | float) and 0 <= lifetime < _LONGEST
        seconds = float(lifetime) if said else self._settings.token_seconds
        return _Held(f"Bearer {token}", clock.monotonic() + seconds * _USED_SHARE, scopes)


def _choose(target: Reference, headers: Sequence[str]) -> Challenge:
    offered = [found for header in headers for found in challenges.parse(header)]
    for found in offered:
        if found.scheme == "bearer" and found.parameters.get("realm"):
            return found
    for found in offered:
        if found.scheme == "basic":
            return found
    raise errors.Permanent(
        "Unauthorized", f"{target.host} asks for neither Basic nor Bearer, but {list(headers)}"
    )


def _basic(login: Login) -> str:
    return "Basic " + base64.b64encode(f"{login.username}:{login.password}".encode()).decode()

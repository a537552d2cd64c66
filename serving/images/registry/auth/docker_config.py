"""Docker's `config.json`, and the Secret of type `kubernetes.io/dockerconfigjson` of the same form. Pure.

    {"auths": {"registry.example": {"auth": "<base64 of user:password>"}},
     "credsStore": "...", "credHelpers": {...}}

Keys are hosts, URLs (`https://index.docker.io/v1/`), and in Secrets also prefixes of repositories and `*`
labels (https://kubernetes.io/docs/concepts/containers/images/#config-json); the longest matching key wins.
"""

import base64
import fnmatch
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from serving import errors

_HELPER = re.compile(r"[A-Za-z0-9][-A-Za-z0-9._]*")
"""Name of a helper, without `/`, so that the program `docker-credential-NAME` is one on PATH."""
_HUB_KEYS = frozenset({"index.docker.io", "docker.io", "registry-1.docker.io"})
HUB_SERVER = "https://index.docker.io/v1/"
"""Name of Docker Hub for credential helpers."""


@dataclass(frozen=True)
class Login:
    """A user with a password, or an identity token (OAuth2 refresh token)."""

    username: str = ""
    password: str = field(default="", repr=False)
    identity_token: str = field(default="", repr=False)


@dataclass(frozen=True)
class DockerConfig:
    """Logins and helper programs by registry."""

    auths: Mapping[str, Login] = field(default_factory=dict)
    """By `host[:port][/path]`, normalised."""
    creds_store: str = ""
    """Helper program for hosts without an entry in `cred_helpers`."""
    cred_helpers: Mapping[str, str] = field(default_factory=dict)

    def login(self, host: str, repository: str) -> Login | None:
        """Return the login with the longest matching key; None if no key matches."""
        matching = [key for key in self.auths if _matches(key, host, repository)]
        return self.auths[max(matching, key=lambda key: (len(key), key))] if matching else None

    def helper(self, host: str) -> str:
        """Return the name of the helper program for a host, or ''."""
        key = _normal(host)
        for name, helper in self.cred_helpers.items():
            if _normal(name) == key:
                return helper
        return self.creds_store


def parse(data: bytes, where: str, *, programs: bool) -> DockerConfig:
    """Parse a configuration.

    Args:
        data: the JSON.
        where: its name in messages.
        programs: whether it may name helper programs. A Secret must not: its author would run programs as us.

    Raises:
        errors.Permanent: `InvalidCredentials`; the message names the field and the rule, never a password.
    """
    try:
        raw = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise errors.Permanent("InvalidCredentials", f"{where}: must be JSON") from error
    if not isinstance(raw, dict):
        raise errors.Permanent("InvalidCredentials", f"{where}: must be an object")
    auths = _object(raw, "auths", where)
    logins = {_normal(key): _login(item, f"{where}: auths[{key!r}]") for key, item in auths.items()}
    helpers = _object(raw, "credHelpers", where)
    store = raw.get("credsStore") or ""
    if not programs and (helpers or store):
        raise errors.Permanent(
            "InvalidCredentials",
            f"{where}: credsStore and credHelpers name programs, which a Secret must not",
        )
    for name, helper in {
        "credsStore": store,
        **{f"credHelpers[{k!r}]": v for k, v in helpers.items()},
    }.items():
        if not isinstance(helper, str) or (helper and not _HELPER.fullmatch(helper)):
            raise errors.Permanent(
                "InvalidCredentials", f"{where}: {name}: must match {_HELPER.pattern}, got {helper!r}"
            )
    return DockerConfig({key: login for key, login in logins.items() if login}, store, helpers)


def _object(raw: Mapping[str, Any], name: str, where: str) -> dict[str, Any]:
    value = raw.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise errors.Permanent("InvalidCredentials", f"{where}: {name}: must be an object")
    return value


def _login(item: Any, where: str) -> Login | None:
    """Return the login in an entry of `auths`; None if the entry has none."""
    if not isinstance(item, dict):
        raise errors.Permanent("InvalidCredentials", f"{where}: must be an object")
    texts = {name: item.get(name) or "" for name in ("username", "password", "auth", "identitytoken")}
    for name, value in texts.items():
        if not isinstance(value, str):
            raise errors.Permanent("InvalidCredentials", f"{where}: {name}: must be a string")
    username, password = texts["username"], texts["password"]
    if texts["auth"]:
        username, password = _decode(texts["auth"], where)
    if not (username or password or texts["identitytoken"]):
        return None  # docker writes {} for hosts whose login a helper has
    return Login(username, password, texts["identitytoken"])


def _decode(auth: str, where: str) -> tuple[str, str]:
    """Return (user, password) of the field `auth`."""
    try:
        text = base64.b64decode(auth, validate=True).decode()
    except ValueError as error:  # of characters outside of ASCII, of base64 or of UTF-8
        raise errors.Permanent("InvalidCredentials", f"{where}: auth: must be base64 of UTF-8") from error
    username, colon, password = text.partition(":")
    if not colon:
        raise errors.Permanent("InvalidCredentials", f"{where}: auth: must hold USER:PASSWORD")
    # As Docker's CLI, which ignores NULs there: its buffer for the decoded text may end with some.
    return username, password.rstrip("\0")


def _normal(key: str) -> str:
    """Return `host[:port][/path]` of a key, with one name for Docker Hub."""
    text = re.sub(r"^https?://", "", key.strip())
    host, _, path = text.partition("/")
    path = re.sub(r"^v[12](/|$)", "", path).strip("/")
    host = "docker.io" if host.lower() in _HUB_KEYS else host.lower()
    return f"{host}/{path}" if path else host


def _matches(key: str, host: str, repository: str) -> bool:
    """Whether a normalised key is for a repository; labels of its host are patterns, its path is a prefix."""
    pattern, _, path = key.partition("/")
    labels, actual = pattern.split("."), _normal(host).split(".")
    if len(labels) != len(actual):
        return False
    # Equal labels match without a pattern: the brackets of an IPv6 address would be a set of characters.
    same = all(
        name == label or fnmatch.fnmatchcase(name, label) for name, label in zip(actual, labels, strict=True)
    )
    return same and (not path or repository == path or repository.startswith(f"{path}/"))

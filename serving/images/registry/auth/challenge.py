"""Parses `WWW-Authenticate`, a registry's challenges. Pure.

RFC 9110 §11.6.1 (several challenges in one header, tokens and quoted strings); the parameters of Bearer are
those of distribution's token specification (`realm`, `service`, `scope`).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

_WORD = r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
"""A token (§5.6.2)."""
_PARAMETER = re.compile(rf'({_WORD})[ \t]*=[ \t]*(?:"((?:[^"\\]|\\.)*)"|({_WORD}))')
"""Groups: the name, then the value as a quoted string or as a token."""
_SCHEME = re.compile(rf"({_WORD})(?:[ \t]+|(?=,)|$)")
_OPAQUE = re.compile(r"[A-Za-z0-9\-._~+/]+=*(?=[ \t]*(?:,|$))")
"""RFC 9110's token68, in place of parameters; Basic and Bearer have none in a challenge."""
_GAP = re.compile(r"[ \t,]*")


@dataclass(frozen=True)
class Challenge:
    """One way to authenticate: the scheme in lower case, and its parameters by lower-case name."""

    scheme: str
    parameters: Mapping[str, str]

    @property
    def scopes(self) -> frozenset[str]:
        """Scopes that the token must have."""
        return frozenset(self.parameters.get("scope", "").split())


def parse(header: str) -> tuple[Challenge, ...]:
    """Return the challenges of a header, in order, up to the first malformed one."""
    challenges: list[Challenge] = []
    at = _skip(header, 0)
    while at < len(header):
        scheme = _SCHEME.match(header, at)
        if scheme is None:
            break
        at = scheme.end()
        parameters: dict[str, str] = {}
        while (match := _PARAMETER.match(header, _skip(header, at))) is not None:
            quoted = match[2]
            value = re.sub(r"\\(.)", r"\1", quoted) if quoted is not None else match[3]
            parameters.setdefault(match[1].lower(), value)
            at = match.end()
        if not parameters and (opaque := _OPAQUE.match(header, at)):
            at = opaque.end()
        challenges.append(Challenge(scheme[1].lower(), parameters))
        at = _skip(header, at)
    return tuple(challenges)


def _skip(header: str, at: int) -> int:
    """Return the offset behind the spaces and commas at an offset."""
    gap = _GAP.match(header, at)
    return gap.end() if gap else at

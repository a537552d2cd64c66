"""Pages of a list, all as of one resourceVersion. Pure."""

import base64
import binascii
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import orjson

from serving import errors
from serving.embedded.apiserver import status_errors
from serving.embedded.apiserver.storage.history import Matches, ObjectKey, ObjectVersion


@dataclass(frozen=True)
class Position:
    """Where the next page starts: after this key, in the state as of this version."""

    version: int
    after: ObjectKey


@dataclass(frozen=True)
class ListPage:
    """One page of a list."""

    entries: Sequence[ObjectVersion]
    token: str = ""
    """The `continue` token of the next page; empty on the last page."""
    remaining: int | None = None
    """Number of objects on later pages; None on the last page and, as in kube-apiserver, with selectors."""


def encode(position: Position) -> str:
    """Return the opaque `continue` token: 1 (the format of the token), version, namespace and name."""
    payload = orjson.dumps([1, position.version, *position.after])
    return base64.urlsafe_b64encode(payload).decode().rstrip("=")


def _invalid(token: str) -> errors.ApiError:
    cause = status_errors.invalid("continue", token, "continue key is not valid")
    return status_errors.bad_request(f"continue: {cause.message}", (cause,))


def decode(token: str) -> Position:
    """Parse a `continue` token.

    Raises:
        errors.ApiError: 400, the token is malformed.
    """
    try:
        padded = token.encode("ascii") + b"=" * (-len(token) % 4)
        fields = orjson.loads(base64.urlsafe_b64decode(padded))
    except (ValueError, UnicodeEncodeError, binascii.Error) as error:
        raise _invalid(token) from error
    match fields:
        case [1, int(version), str(namespace), str(name)] if version >= 0:
            return Position(version, ObjectKey(namespace, name))
    raise _invalid(token)


def page(
    state: Mapping[ObjectKey, ObjectVersion],
    keys: Sequence[ObjectKey],
    version: int,
    *,
    limit: int,
    after: ObjectKey | None,
    matches: Matches | None,
) -> ListPage:
    """Return one page of a state.

    Args:
        state: all objects of the kind as of `version`.
        keys: the keys of the namespace or of all namespaces, sorted.
        version: resourceVersion of the state, for the token.
        limit: maximum number of objects; 0 for all.
        after: last key of the previous page; None for the first page.
        matches: the selectors combined; None without selectors.
    """
    entries: list[ObjectVersion] = []
    start = 0 if after is None else bisect_right(keys, after)
    for index in range(start, len(keys)):
        entry = state[keys[index]]
        if matches is not None and not matches(entry.object):
            continue
        if limit and len(entries) == limit:
            remaining = None if matches is not None else len(keys) - index
            return ListPage(entries, encode(Position(version, keys[index - 1])), remaining)
        entries.append(entry)
    return ListPage(entries)

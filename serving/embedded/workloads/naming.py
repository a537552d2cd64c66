"""Deterministic names and hashes, so that the API refuses a create that is repeated after a restart."""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import orjson

_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
"""Without vowels and similar characters: k8s.io/apimachinery/pkg/util/rand/rand.go."""

POD_NAME_LIMIT = 63
"""A Pod's name is also its host name, an RFC 1123 label."""
_SUFFIX_LENGTH = 5
"""Characters of the hash at the end of a Pod's name."""


def digest(text: bytes, length: int) -> str:
    """Return a hash of `length` characters that are safe in names and labels."""
    number = int.from_bytes(hashlib.sha256(text).digest()[:16], "big")
    letters = []
    for _ in range(length):
        number, index = divmod(number, len(_ALPHABET))
        letters.append(_ALPHABET[index])
    return "".join(letters)


def template_hash(template: Mapping[str, Any]) -> str:
    """Return the `pod-template-hash` of a stored template with its defaults: ten characters."""
    return digest(orjson.dumps(template, option=orjson.OPT_SORT_KEYS), 10)


def pod_name(prefix: str, seed: str) -> str:
    """Return `<prefix>-<hash of seed>`, with the prefix cut so that the name fits a label."""
    room = POD_NAME_LIMIT - len("-") - _SUFFIX_LENGTH
    return f"{prefix[:room].rstrip('-.')}-{digest(seed.encode(), _SUFFIX_LENGTH)}"


def free_names(prefix: str, seed: str, taken: Iterable[str], count: int) -> list[str]:
    """Return the first `count` names not taken of `pod_name(prefix, "<seed>/<slot>")`, for slots 0, 1, ..."""
    used = set(taken)
    names: list[str] = []
    slot = 0
    while len(names) < count:
        name = pod_name(prefix, f"{seed}/{slot}")
        slot += 1
        if name not in used:
            used.add(name)
            names.append(name)
    return names

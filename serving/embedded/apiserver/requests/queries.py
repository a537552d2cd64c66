"""What a request asks for, out of its query string and headers. Pure; everything wrong is a 400 or 406."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from serving import errors
from serving.embedded.apiserver import selectors
from serving.embedded.apiserver.selectors import Predicate
from serving.objects import Object
from serving.resources.kinds import Kind

Form = Literal["Object", "Table", "PartialObjectMetadata", "PartialObjectMetadataList"]
_FORMS: Mapping[str, Form] = {
    "Table": "Table",
    "PartialObjectMetadata": "PartialObjectMetadata",
    "PartialObjectMetadataList": "PartialObjectMetadataList",
}
_JSON = frozenset({"application/json", "application/*", "*/*"})
LONGEST_INT = 18
"""Digits of a number in a query; 64-bit integers have at most 19."""


@dataclass(frozen=True)
class Accepted:
    """How the client wants objects: as they are, as rows, or their metadata alone."""

    form: Form = "Object"
    version: str = "v1"
    group: str = ""


@lru_cache(64)
def accepted(header: str) -> Accepted:
    """Return the first offer of an Accept header that can be honoured.

    Raises:
        errors.ApiError: 406, none can (protobuf alone, for example).
    """
    if not header.strip():
        return Accepted()
    for offer in header.split(","):
        media, *pairs = (part.strip() for part in offer.split(";"))
        if media.lower() not in _JSON:
            continue
        found = dict(pair.split("=", 1) for pair in pairs if "=" in pair)
        wanted = found.get("as")
        if wanted is None:
            return Accepted(group=found.get("g", ""), version=found.get("v", "v1"))
        if wanted in _FORMS and found.get("g") == "meta.k8s.io" and found.get("v") in ("v1", "v1beta1"):
            return Accepted(_FORMS[wanted], found["v"], "meta.k8s.io")
        if wanted == "APIGroupDiscoveryList" and found.get("v") in ("v2", "v2beta1"):
            return Accepted("Object", found["v"], "apidiscovery.k8s.io")
    message = "only the following media types are accepted: application/json"
    raise errors.ApiError(406, "NotAcceptable", message)


def flag(query: Mapping[str, str], name: str) -> bool:
    """Return a boolean parameter; absent, empty and false are False.

    Raises:
        errors.ApiError: 400, it is neither true nor false.
    """
    value = query.get(name, "").lower()
    if value in ("", "0", "false", "f"):
        return False
    if value in ("1", "true", "t"):
        return True
    raise bad(name, query[name], "must be true or false")


def watches(query: Mapping[str, str]) -> bool:
    """Whether a list is to be followed by a watch: kube-apiserver takes a bare `?watch` for true, too.

    Raises:
        errors.ApiError: 400, the parameter is neither true nor false.
    """
    return query.get("watch") == "" or flag(query, "watch")


def number(query: Mapping[str, str], name: str) -> int | None:
    """Return a number that is not negative, or None where there is none.

    Raises:
        errors.ApiError: 400, it is something else.
    """
    value = query.get(name, "")
    if value == "":
        return None
    if not (value.isascii() and value.isdigit()) or len(value) > LONGEST_INT:
        raise bad(name, value, "must be a whole number that is not negative")
    return int(value)


def bad(name: str, value: str, rule: str) -> errors.ApiError:
    """Return the 400 for a parameter; it names the parameter, the rule and the value."""
    cause = errors.Cause(name, f"Invalid value: {value[:256]!r}: {rule}")
    return errors.ApiError(400, "BadRequest", f"{name}: {cause.message}", (cause,))


def matcher(kind: Kind, query: Mapping[str, str]) -> Predicate | None:
    """Return the label and field selectors together; None where everything matches.

    Raises:
        errors.ApiError: 400, one of them is malformed.
    """
    labels, fields = query.get("labelSelector", ""), query.get("fieldSelector", "")
    tests = [selectors.labels(labels)] if labels else []
    tests += [selectors.fields(kind, fields)] if fields else []
    if not tests:
        return None
    if len(tests) == 1:
        return tests[0]
    first, second = tests

    def both(obj: Object) -> bool:
        return first(obj) and second(obj)

    return both


def name_in(query: Mapping[str, str]) -> str | None:
    """Return the name that a field selector pins, so that one object costs one look-up."""
    fields = query.get("fieldSelector", "")
    if "," in fields or "!" in fields or not fields.startswith("metadata.name="):
        return None
    return fields.removeprefix("metadata.name=").removeprefix("=")


def dry_run(query: Mapping[str, str]) -> bool:
    """Whether nothing is to be stored.

    Raises:
        errors.ApiError: 400, a value other than All.
    """
    value = query.get("dryRun", "")
    if value not in ("", "All"):
        raise bad("dryRun", value, "supported values: All")
    return value == "All"


def field_validation(query: Mapping[str, str]) -> str:
    """Return Strict, Warn or Ignore; Strict where it is not said: what cannot be honoured is never ignored.

    Raises:
        errors.ApiError: 400, something else.
    """
    value = query.get("fieldValidation", "") or "Strict"
    if value not in ("Strict", "Warn", "Ignore"):
        raise bad("fieldValidation", value, "supported values: Strict, Warn, Ignore")
    return value


def manager(query: Mapping[str, str], user_agent: str) -> str:
    """Return the field manager: as asked, else the User-Agent up to its slash, as kube-apiserver does.

    Raises:
        errors.ApiError: 400, too long or not printable.
    """
    name = query.get("fieldManager", "")
    if len(name) > 128 or not name.isprintable():
        raise bad("fieldManager", name, "must be at most 128 printable characters")
    return name or user_agent.split("/", 1)[0][:128] or "unknown"

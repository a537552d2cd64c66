"""Parses the query string and the headers of a request; an invalid one is a 400 or 406. Pure."""

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
_MAX_DIGITS = 18
"""Most digits of a number in a query, so that it fits a 64-bit integer, which has at most 19."""


@dataclass(frozen=True)
class Accepted:
    """The representation of objects that the client accepts, by the parameters of the media type."""

    form: Form = "Object"
    """Whole objects, a Table, or metadata alone (`as`)."""
    version: str = "v1"
    """API version of the form (`v`)."""
    group: str = ""
    """API group of the form (`g`): `meta.k8s.io`; `apidiscovery.k8s.io` for aggregated discovery."""


@lru_cache(64)
def accepted(header: str) -> Accepted:
    """Return the first media type of an Accept header that is supported.

    Raises:
        errors.ApiError: 406, no media type is supported (protobuf alone, for example).
    """
    if not header.strip():
        return Accepted()
    for offer in header.split(","):
        media, *pairs = (part.strip() for part in offer.split(";"))
        if media.lower() not in _JSON:
            continue
        params = dict(pair.split("=", 1) for pair in pairs if "=" in pair)
        form = params.get("as")
        if form is None:
            return Accepted()  # a group and a version are those of a form
        if form in _FORMS and params.get("g") == "meta.k8s.io" and params.get("v") in ("v1", "v1beta1"):
            return Accepted(_FORMS[form], params["v"], "meta.k8s.io")
        if form == "APIGroupDiscoveryList" and params.get("v") in ("v2", "v2beta1"):
            return Accepted("Object", params["v"], "apidiscovery.k8s.io")
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
    """Whether the request is a watch; a bare `?watch` counts, as in kube-apiserver.

    Raises:
        errors.ApiError: 400, the parameter is neither true nor false.
    """
    return query.get("watch") == "" or flag(query, "watch")


def number(query: Mapping[str, str], name: str) -> int | None:
    """Return a non-negative number, or None where the parameter is absent.

    Raises:
        errors.ApiError: 400, the value is not such a number.
    """
    value = query.get(name, "")
    if value == "":
        return None
    if not (value.isascii() and value.isdigit()) or len(value) > _MAX_DIGITS:
        raise bad(name, value, "must be a whole number that is not negative")
    return int(value)


def bad(name: str, value: str, rule: str) -> errors.ApiError:
    """Return the 400 for a parameter; it names the parameter, the rule and the value."""
    cause = errors.Cause(name, f"Invalid value: {value[:256]!r}: {rule}")
    return errors.ApiError(400, "BadRequest", f"{name}: {cause.message}", (cause,))


def matcher(kind: Kind, query: Mapping[str, str]) -> Predicate | None:
    """Return the label and field selectors as one predicate, or None without selectors.

    Raises:
        errors.ApiError: 400, a selector is malformed.
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
    """Return the name in a field selector `metadata.name=NAME`; None for another one or none.

    A list with this selector looks one object up instead of testing all.
    """
    fields = query.get("fieldSelector", "")
    if "," in fields or "!" in fields or not fields.startswith("metadata.name="):
        return None
    return fields.removeprefix("metadata.name=").removeprefix("=")


def included_object(query: Mapping[str, str]) -> str:
    """Return the part of an object that each row of a Table has: None, Metadata or Object.

    Raises:
        errors.ApiError: 400, another value.
    """
    value = query.get("includeObject", "") or "Metadata"
    if value not in ("None", "Metadata", "Object"):
        raise bad("includeObject", value, "supported values: None, Metadata, Object")
    return value


def dry_run(query: Mapping[str, str]) -> bool:
    """Whether the write is a dry run.

    Raises:
        errors.ApiError: 400, a value other than All.
    """
    value = query.get("dryRun", "")
    if value not in ("", "All"):
        raise bad("dryRun", value, "supported values: All")
    return value == "All"


def field_validation(query: Mapping[str, str]) -> str:
    """Return Strict, Warn or Ignore; the default is Strict, so that no unknown field is ignored.

    Raises:
        errors.ApiError: 400, another value.
    """
    value = query.get("fieldValidation", "") or "Strict"
    if value not in ("Strict", "Warn", "Ignore"):
        raise bad("fieldValidation", value, "supported values: Strict, Warn, Ignore")
    return value


def manager(query: Mapping[str, str], user_agent: str) -> str:
    """Return the field manager: the parameter, or the User-Agent up to its slash, as kube-apiserver does.

    Raises:
        errors.ApiError: 400, the name is too long or not printable.
    """
    name = query.get("fieldManager", "")
    if len(name) > 128 or not name.isprintable():
        raise bad("fieldManager", name, "must be at most 128 printable characters")
    return name or user_agent.split("/", 1)[0][:128] or "unknown"

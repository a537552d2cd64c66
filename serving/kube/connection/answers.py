"""Reads the bodies of responses with status 200, which a proxy before the API may have written: the page for
its users' login, for example.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import orjson

from serving import errors
from serving.objects import Object


@contextmanager
def shape_checked(request: str) -> Iterator[None]:
    """Raise `errors.Unreadable` if the code below reads a value that has another shape than it expects."""
    try:
        yield
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise errors.Unreadable(
            f"{request}: the response is not one of the Kubernetes API: {type(error).__name__}: {error}"
        ) from error


def json_object(body: bytes, request: str) -> Object:
    """Return the JSON object in a body.

    Raises:
        errors.Unreadable: the body is no JSON object.
    """
    with shape_checked(request):
        value = orjson.loads(body)
        if not isinstance(value, dict):
            raise TypeError(f"must be a JSON object, got {type(value).__name__}")
    return value


def objects_in(document: Object, field: str, request: str) -> list[Object]:
    """Return the objects in a list of a document; none if the list is null, as Go writes an empty one.

    Raises:
        errors.Unreadable: the field is missing, or is no list of objects.
    """
    with shape_checked(request):
        listed: list[Any] = document[field] or []
        if not isinstance(listed, list) or not all(isinstance(entry, dict) for entry in listed):
            raise TypeError(f"{field} must be a list of objects")
    return listed

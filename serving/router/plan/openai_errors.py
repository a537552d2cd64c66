"""Errors in the form of OpenAI's API, for the requests of that API. Pure."""

import re
from typing import Any

PATH = r"[^?]*/v1/((chat/)?completions|models(/[^?:]*)?)(\?.*)?"
"""Regular expression of a whole path of the API and its query, with or without the prefix of an Inference;
`models/x:predict` is of another API.
"""
SERVER_ERROR = 500
"""The lowest status of an error of type `server_error`."""
_PATH = re.compile(PATH)
_TOO_MANY = 429


def has_form(path: str) -> bool:
    """Return whether errors at a path, which may have a query, have OpenAI's form."""
    return _PATH.fullmatch(path) is not None


def document(status: int, message: str, code: str | None) -> dict[str, Any]:
    """Return an error.

    Args:
        status: of HTTP.
        message: for people.
        code: for programs: the `reason` that the same error has in Slipway's other APIs; None for none.
    """
    kind = "rate_limit_error" if status == _TOO_MANY else "invalid_request_error"
    if status >= SERVER_ERROR:
        kind = "server_error"
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}

"""The port of a Pod that is reached by a Unix socket: `names.SOCKET_PORT_ANNOTATION`. Pure."""

from collections.abc import Mapping
from typing import Any

from serving.resources import names


def requested(meta: Mapping[str, Any]) -> int | None:
    """Return the containerPort of a Pod's annotation; None without one, or if it is no number of a port."""
    text = (meta.get("annotations") or {}).get(names.SOCKET_PORT_ANNOTATION, "")
    return int(text) if text.isdecimal() and 0 < int(text) < 65536 else None

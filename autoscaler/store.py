"""What was learned of each target, in files that a restart finds: one of JSON for each Autoscaler."""

import contextlib
import logging
from pathlib import Path
from typing import Any

import orjson

from serving.kube import Key

log = logging.getLogger(__name__)

MOST_BYTES = 4 * 1024 * 1024
"""Of one file: fifty times what a policy keeps; what is larger is not ours."""


class Store:
    """A folder that belongs to one controller."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read(self, key: Key) -> dict[str, Any] | None:
        """Return what was kept; None where there is nothing, or nothing that can be read."""
        path = self._path(key)
        try:
            size = path.stat().st_size
            found = orjson.loads(path.read_bytes()) if size <= MOST_BYTES else None
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            log.warning("%s is left out, what was learned begins anew: %s", path, error)
            return None
        if not isinstance(found, dict):
            log.warning("%s is left out, what was learned begins anew: it is not ours", path)
            return None
        return found

    def write(self, key: Key, state: dict[str, Any]) -> None:
        """Keep this instead of what was kept before: all of it or nothing."""
        path = self._path(key)
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            beside = path.with_suffix(".new")
            beside.write_bytes(orjson.dumps(state))
            beside.replace(path)
        except OSError as error:
            log.warning("%s cannot be written: %s", path, error)

    def forget(self, key: Key) -> None:
        """Keep nothing of an Autoscaler that has gone."""
        with contextlib.suppress(OSError):
            self._path(key).unlink(missing_ok=True)

    def _path(self, key: Key) -> Path:
        """A namespace has no dot, so that no two Autoscalers have one file."""
        return self._folder / f"{key.namespace}.{key.name}.json"

"""Stores the learned state of each target across restarts: one JSON file for each Autoscaler."""

import contextlib
import logging
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any

import orjson

from serving.kube import Key
from serving.system.files import atomic_file

log = logging.getLogger(__name__)

MOST_BYTES = 4 * 1024 * 1024
"""Most bytes of one file, fifty times the state of a policy; a larger file is not an autoscaler's."""

_SUFFIX = ".json"
_UID = "uid"


class StateStore:
    """A folder that belongs to one controller."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read(self, key: Key, uid: str) -> dict[str, Any] | None:
        """Return the stored state of the Autoscaler with this uid; None without a file, or with a file that
        cannot be read, holds no learned state, or is of an earlier Autoscaler of this name.
        """
        path = self._path(key)
        try:
            size = path.stat().st_size
            state = orjson.loads(path.read_bytes()) if size <= MOST_BYTES else None
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            log.warning("%s is ignored, learning begins anew: %s", path, error)
            return None
        if not isinstance(state, dict):
            log.warning("%s is ignored, learning begins anew: it is not ours", path)
            return None
        # Files of older versions name no uid.
        return state if state.pop(_UID, uid) == uid else None

    def write(self, key: Key, uid: str, state: dict[str, Any], *, synced: bool = True) -> None:
        """Replace the stored state of the Autoscaler with this uid; with `synced` also before a power cut."""
        path = self._path(key)
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            atomic_file.replace(path, orjson.dumps({_UID: uid} | state), synced=synced)
        except OSError as error:
            log.warning("%s cannot be written: %s", path, error)

    def forget(self, key: Key) -> None:
        """Delete the state of a deleted Autoscaler."""
        with contextlib.suppress(OSError):
            self._path(key).unlink(missing_ok=True)

    def retain(self, keys: AbstractSet[Key], namespace: str = "") -> None:
        """Delete the states of all other Autoscalers, in `namespace` or in all namespaces if it is empty."""
        with contextlib.suppress(OSError):
            kept = {self._path(key) for key in keys}
            for path in self._folder.glob(f"{namespace or '*'}.*{_SUFFIX}"):
                if path not in kept:
                    path.unlink(missing_ok=True)

    def _path(self, key: Key) -> Path:
        """Return the file of an Autoscaler: a namespace has no dot, so no two Autoscalers share a file."""
        return self._folder / f"{key.namespace}.{key.name}{_SUFFIX}"

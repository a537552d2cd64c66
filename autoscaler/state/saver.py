"""Stores the learned states of all targets, in turn."""

import asyncio
import logging
from collections.abc import Mapping

from autoscaler.state.store import StateStore
from autoscaler.state.target_state import TargetState
from serving.kube import Key
from serving.objects import Object
from serving.system import threads

log = logging.getLogger(__name__)


class StateSaver:
    """Stores each learned state once in `seconds`."""

    def __init__(self, states: Mapping[Key, TargetState], store: StateStore | None, seconds: float) -> None:
        self._states, self._store, self._seconds = states, store, seconds

    async def run(self) -> None:
        """Store learned states one by one: a thousand at once would block the ticks for seconds."""
        while True:
            keys = list(self._states)
            if not keys:
                await asyncio.sleep(self._seconds)
            for key in keys:
                await asyncio.sleep(self._seconds / len(keys))
                if (state := self._states.get(key)) is not None:
                    try:
                        # A busy disk takes seconds for a write, and the leader must renew its Lease.
                        await threads.run_to_end(self._save, key, state.uid, state.learned_state())
                    except RuntimeError as error:
                        log.warning("the state of %s is not stored: no thread can be started: %s", key, error)

    def save_all(self) -> None:
        """Store all learned states now, without a wait for the disk: the process ends."""
        for key, state in self._states.items():
            self._save(key, state.uid, state.learned_state(), synced=False)

    def _save(self, key: Key, uid: str, learned: Object | None, *, synced: bool = True) -> None:
        if self._store is not None and learned is not None:
            self._store.write(key, uid, learned, synced=synced)

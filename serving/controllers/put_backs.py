"""The times of put-backs, so that the Inference controller and another writer do not fight in a loop.

A put-back replaces a Deployment's edited Pod template by the rendered one (`template_edits`).
"""

from collections.abc import Mapping
from dataclasses import dataclass

from serving import clock
from serving.kube import Key
from serving.objects import Object


@dataclass(frozen=True)
class _PutBack:
    generation: int
    """The Deployment's generation after the put-back."""
    at: float
    """Time of the put-back, in monotonic seconds."""


class PutBacks:
    """Allows one put-back for each generation of a Deployment, with a pause between two put-backs.

    The times are in memory: after a restart of the process every Deployment may be put back at once.
    """

    def __init__(self, pause_seconds: float) -> None:
        self._pause = pause_seconds
        self._last: dict[Key, dict[str, _PutBack]] = {}
        """By Inference and by uid of the Deployment."""

    def done(self, inference: Key, deployment: Object) -> None:
        """Record a put-back; `deployment` is the API's response to it."""
        meta = deployment["metadata"]
        last = _PutBack(meta["generation"], clock.monotonic())
        self._last.setdefault(inference, {})[meta["uid"]] = last

    def blocked(self, inference: Key, deployments: Mapping[str, Object]) -> frozenset[str]:
        """Return the names of the Deployments that must not be put back now: in the pause, or in vain.

        `deployments` are the Inference's stored Deployments by name.
        """
        last, now = self._last.get(inference, {}), clock.monotonic()
        paused = frozenset(
            name
            for name, deployment in deployments.items()
            if (before := last.get(deployment["metadata"]["uid"])) is not None
            and now < before.at + self._pause
        )
        return paused | self.in_vain(inference, deployments)

    def in_vain(self, inference: Key, deployments: Mapping[str, Object]) -> frozenset[str]:
        """Return the names of the Deployments for which another put-back would have no effect.

        Their generation is still that of the last put-back: if the template is edited nevertheless, a
        mutating webhook edited it during the put-back, and would do so again.
        """
        last = self._last.get(inference, {})
        return frozenset(
            name
            for name, deployment in deployments.items()
            if (before := last.get(deployment["metadata"]["uid"])) is not None
            and before.generation == deployment["metadata"]["generation"]
        )

    def seconds_left(self, inference: Key) -> float | None:
        """Return the seconds until the next put-back may be due; None if no pause is running."""
        now = clock.monotonic()
        left = [last.at + self._pause - now for last in self._last.get(inference, {}).values()]
        return min((seconds for seconds in left if seconds > 0), default=None)

    def forget(self, inference: Key) -> None:
        """Forget an Inference that is gone."""
        self._last.pop(inference, None)

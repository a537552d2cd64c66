"""Retries of one operation on a registry, with pauses between them."""

import asyncio
import random

from serving import errors
from serving.backoff import backoff_seconds
from serving.images.registry.responses import UNAVAILABLE
from serving.settings import RegistrySettings


class RegistryRetries:
    """Counts failed tries and pauses between them, with exponential back-off."""

    def __init__(self, settings: RegistrySettings) -> None:
        self._settings = settings
        self._failed = 0

    def progress(self) -> None:
        """Start counting again, as the operation has made progress."""
        self._failed = 0

    async def wait(self, error: errors.Temporary) -> None:
        """Sleep before the next try.

        Raises:
            errors.Temporary: the error itself, if it is not `RegistryUnavailable`, asks for a pause of more
                than `retry_after_cap_seconds`, or ended the last of the `attempts`.
        """
        self._failed += 1
        requested = error.retry_after or 0.0
        if (
            error.reason != UNAVAILABLE
            or self._failed >= self._settings.attempts
            or requested > self._settings.retry_after_cap_seconds
        ):
            raise error
        delay = backoff_seconds(
            self._failed, self._settings.backoff_base_seconds, self._settings.backoff_cap_seconds
        )
        await asyncio.sleep(max(requested, delay * random.uniform(0.5, 1.0)))  # noqa: S311 no secret

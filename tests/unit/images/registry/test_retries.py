"""Retries of one operation on a registry."""

import asyncio
from dataclasses import replace

import pytest

from serving import errors
from serving.images.registry.responses import UNAVAILABLE
from serving.images.registry.retries import RegistryRetries
from serving.settings import RegistrySettings


async def test_pause_stays_at_its_cap_when_thousands_of_attempts_fail(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    settings = replace(RegistrySettings(), attempts=10**9)
    retries = RegistryRetries(settings)
    for _ in range(2_000):
        await retries.wait(errors.Temporary(UNAVAILABLE, "the registry is away"))
    assert all(
        settings.backoff_cap_seconds / 2 <= pause <= settings.backoff_cap_seconds for pause in pauses[10:]
    )

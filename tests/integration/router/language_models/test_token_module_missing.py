"""A gateway that was installed without a C compiler serves language models uncounted, and says so."""

import logging
from pathlib import Path

import aiohttp
import pytest

from serving.router.envoy import token_module
from tests.rig.servers.chat import chatting


async def test_language_models_are_proxied_uncounted_without_the_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(token_module, "library", lambda: None)
    with caplog.at_level(logging.WARNING):
        async with chatting(tmp_path) as chat, aiohttp.ClientSession() as session:
            await chat.serve("continuous")
            assert b"[DONE]" in await chat.ask(stream=True, max_tokens=3)
            assert (await chat.counts()).counters == {}
            url = f"{chat.rig.url}/default/openai/v1/models"
            async with session.get(url) as response:
                answer = await response.json()
                assert (response.status, answer["error"]) == (503, token_module.NOT_BUILT)
                assert response.headers["retry-after"]
    assert token_module.NOT_BUILT in caplog.text

"""The product with replicas of language models of known speed, sized by waiting tokens, and chats as load."""

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import yaml

from rig.scaling.live_scaling import HERE, LEAD_SECONDS, Lives, ScalingWorld, SlotReplica
from serving import clock
from serving.cli.demo.stack import Stack
from serving.data_dir import DataDir
from serving.kube import connect
from serving.objects import Object

ENGINE = "own-tokens"


@dataclass(frozen=True)
class TokenMachine:
    """What a replica can do."""

    slots: int
    step: float
    """Seconds between two tokens of a sequence."""
    prefill: float
    """Prompt tokens per second."""
    load: float
    """Seconds that a replica loads its model before it listens."""

    def manifest(self) -> Object:
        """Return the manifest of an engine whose replicas are this fast."""
        command = [sys.executable, str(HERE / "slot_server.py")]
        options = {"slots": self.slots, "step": self.step, "prefill": self.prefill, "load": self.load}
        arguments = [f"--{name}={value}" for name, value in options.items()]
        return {
            "name": ENGINE,
            "image": "benchmarks/tokens",
            "command": command,
            "args": arguments,
            "readiness": "/health",
            "liveness": "/health",
            "tokenUsage": "continuous",
        }


@dataclass(frozen=True)
class ChatAnswer:
    """One chat; times are in seconds from when it was to be sent."""

    at: float
    """Seconds from the start of the run."""
    first: float
    """Until the first token."""
    end: float
    status: int


@dataclass
class PlayedChats:
    """One run."""

    answers: list[ChatAnswer]
    lives: Lives
    start: float
    """Seconds of the machine's monotonic clock."""
    seconds: float
    changes: list[Object]


def chats(moments: list[float], seed: int) -> list[tuple[float, int, int]]:
    """Return chats at these moments, with words and tokens drawn as in a trace of conversations.

    The lengths are an eighth of those of azure_llm_2023_conv (medians 1,020 and 129 tokens), lognormal.
    """
    draw = np.random.default_rng(seed)
    words = np.clip(draw.lognormal(np.log(128), 0.7, len(moments)), 8, 1000).astype(int)
    tokens = np.clip(draw.lognormal(np.log(16), 0.7, len(moments)), 2, 100).astype(int)
    return list(zip(moments, words.tolist(), tokens.tolist(), strict=True))


class TokenWorld(ScalingWorld):
    """One product; each run has an Inference of its own."""

    framework = ENGINE

    def template(self) -> Object:
        return {}

    def url(self, name: str) -> str:
        return f"{self._base}/{name}/v1/chat/completions"

    async def talk(
        self, name: str, asked: list[tuple[float, int, int]], seconds: float, lives: Lives
    ) -> PlayedChats:
        """Send these chats, whose moments are in seconds from the start of the run."""
        start = clock.monotonic() + LEAD_SECONDS
        sent = json.dumps([(start + moment, words, tokens) for moment, words, tokens in asked])
        rows = await self.loaded("chat_load.py", self.url(name), sent)
        answers = [ChatAnswer(at - start, first, end, status) for at, first, end, status in rows]
        answers.sort(key=lambda answer: answer.at)
        return PlayedChats(answers, lives, start, seconds, await self.changes(name))


@asynccontextmanager
async def token_world(folder: Path, machine: TokenMachine) -> AsyncIterator[TokenWorld]:
    """Yield a running product that knows the engine, and remove it afterwards."""
    stack = Stack(DataDir(folder / "data"))
    stack.where.engines.mkdir(parents=True)
    (stack.where.engines / f"{ENGINE}.yaml").write_text(yaml.safe_dump(machine.manifest()))
    try:
        await stack.start()
        async with await connect(stack.where.kubeconfig, component="bench") as kube:
            yield TokenWorld(kube, stack.where, SlotReplica(machine.slots, machine.step, machine.load))
    finally:
        await stack.end()

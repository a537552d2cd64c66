"""Streamed chats of generated lengths, random and reproducible by a seed. Pure."""

import json
import math

import numpy as np

from serving.resources.tuning.load import ChatLoad, LengthRange
from tuner.load.plan import LoadRequest

_CHAT_COUNT = 256
"""Number of distinct chats: an engine's prefix cache answers equal prompts at less cost."""
_WORDS = [
    "the",
    "a",
    "ship",
    "harbour",
    "wind",
    "captain",
    "sails",
    "crew",
    "morning",
    "evening",
    "north",
    "south",
    "river",
    "storm",
    "light",
    "tea",
    "grain",
    "salt",
    "what",
    "when",
    "where",
    "who",
    "carried",
    "left",
    "reached",
    "saw",
    "told",
    "old",
    "new",
    "small",
    "great",
    "long",
]
"""Short common words, of which tokenizers make about one token each."""


def chats(load: ChatLoad, model_name: str, seed: int) -> tuple[LoadRequest, ...]:
    """Return requests to OpenAI's chat completions; lengths are log-uniform.

    The answers have the drawn lengths with engines that know vLLM's `ignore_eos`, and at most those with
    others.
    """
    rng = np.random.default_rng(seed)
    return tuple(
        _chat(model_name, _length(load.prompt_words, rng), _length(load.output_tokens, rng), rng)
        for _ in range(_CHAT_COUNT)
    )


def _length(lengths: LengthRange, rng: np.random.Generator) -> int:
    return round(math.exp(rng.uniform(math.log(lengths.minimum), math.log(lengths.maximum))))


def _chat(model_name: str, words: int, tokens: int, rng: np.random.Generator) -> LoadRequest:
    prompt = " ".join(_WORDS[index] for index in rng.integers(0, len(_WORDS), words))
    body = {
        "model": model_name,
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": tokens,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    headers = {"content-type": "application/json"}
    content = json.dumps(body, separators=(",", ":")).encode()
    return LoadRequest("POST", "/v1/chat/completions", headers, content, stream=True)

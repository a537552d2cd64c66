"""Reads a stream of completions in the form of OpenAI's API: server-sent events, one JSON chunk each.

https://platform.openai.com/docs/api-reference/chat/streaming
"""

import json
from collections.abc import Callable
from typing import Any

_TEXTS = ("content", "text", "reasoning", "reasoning_content", "tool_calls")
"""Members with generated text; servers name the reasoning of a model in two ways."""


class TokenStream:
    """The tokens of one stream and their times."""

    def __init__(self, on_first_token: Callable[[], None] = lambda: None) -> None:
        """Begin before the first line."""
        self._on_first_token = on_first_token
        self.moments: list[float] = []
        """Arrival of each chunk with text, in seconds on the monotonic clock."""
        self.usage_tokens = 0
        """Completion tokens by the server's `usage`; 0 without it."""
        self.prompt_tokens = 0
        """Prompt tokens by the server's `usage`; 0 without it."""
        self.finished = False
        """Whether `[DONE]` was received."""
        self.error = ""
        """Empty unless the stream is broken or reports an error."""

    @property
    def count(self) -> int:
        """Tokens of the response: the server's count, or the chunks with text."""
        return self.usage_tokens or len(self.moments)

    def read(self, line: bytes, now: float) -> None:
        """Read one line; lines without data are ignored."""
        if not line.startswith(b"data:"):
            return
        content = line[5:].strip()
        if content == b"[DONE]":
            self.finished = True
            return
        try:
            chunk = json.loads(content)
        except ValueError:
            self.error = "a chunk of the stream is not JSON"
            return
        if not isinstance(chunk, dict) or "error" in chunk:
            self.error = "the stream had an error"
            return
        choices = chunk.get("choices")
        if isinstance(choices, list) and any(_has_text(choice) for choice in choices):
            self.moments.append(now)
            if len(self.moments) == 1:
                self._on_first_token()
        usage = chunk.get("usage")
        if isinstance(usage, dict):
            self.usage_tokens = _count(usage, "completion_tokens", self.usage_tokens)
            self.prompt_tokens = _count(usage, "prompt_tokens", self.prompt_tokens)

    def gaps(self) -> list[float]:
        """Seconds between chunks with text."""
        return [after - before for before, after in zip(self.moments, self.moments[1:], strict=False)]


def _count(usage: dict[str, Any], name: str, before: int) -> int:
    """Return a count of `usage`; `before` if it has none that a record can hold."""
    count = usage.get(name)
    return count if isinstance(count, int) and 0 <= count < 2**32 else before


def _has_text(choice: Any) -> bool:
    """Return whether a choice of a chat (`delta`), or of a completion, has text.

    Reasoning and calls of tools are generated as any other text is.
    """
    if not isinstance(choice, dict):
        return False
    delta = choice.get("delta")
    content = delta if isinstance(delta, dict) else choice
    return any(content.get(name) for name in _TEXTS)

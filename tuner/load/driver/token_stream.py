"""Reads a stream of completions as OpenAI's API sends it: server-sent events, one JSON chunk each.

https://platform.openai.com/docs/api-reference/chat/streaming
"""

import json
from typing import Any


class TokenStream:
    """What one stream said, and when."""

    def __init__(self) -> None:
        """Begin before the first line."""
        self.moments: list[float] = []
        """When each chunk with text came."""
        self.counted = 0
        """Completion tokens, as the server counts them in its `usage`; 0 where it does not."""
        self.finished = False
        """`[DONE]` was seen."""
        self.error = ""

    @property
    def count(self) -> int:
        """Tokens of the answer: the server's count, or the chunks with text."""
        return self.counted or len(self.moments)

    def read(self, line: bytes, now: float) -> None:
        """Take one line, without looking at what is not data."""
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
            self.error = "the stream said an error"
            return
        choices = chunk.get("choices")
        if isinstance(choices, list) and any(_text(choice) for choice in choices):
            self.moments.append(now)
        usage = chunk.get("usage")
        if isinstance(usage, dict) and isinstance(usage.get("completion_tokens"), int):
            self.counted = usage["completion_tokens"]

    def gaps(self) -> list[float]:
        """Seconds between chunks with text."""
        return [after - before for before, after in zip(self.moments, self.moments[1:], strict=False)]


def _text(choice: Any) -> bool:
    if not isinstance(choice, dict):
        return False
    delta = choice.get("delta")
    said = delta if isinstance(delta, dict) else choice
    return bool(said.get("content") or said.get("text") or said.get("reasoning_content"))

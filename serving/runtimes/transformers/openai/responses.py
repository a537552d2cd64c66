"""Answers of OpenAI's API, whole and streamed. Pure.

https://platform.openai.com/docs/api-reference/chat/object, .../chat-streaming, .../completions/object
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from serving.runtimes.transformers.generation import Part, TokenChoice

DONE = b"data: [DONE]\n\n"


def event(document: Any) -> bytes:
    """Return one server-sent event."""
    return b"data: " + orjson.dumps(document) + b"\n\n"


@dataclass(frozen=True)
class GeneratedAnswer:
    """The fields that all parts of one answer share."""

    id: str
    model: str
    created: int
    """Unix seconds."""
    prompt_tokens: int
    token_bytes: Callable[[int], bytes]
    """Returns the bytes of one token."""
    has_logprobs: bool
    """Whether log probabilities are asked for."""

    def usage(self, generated: int) -> dict[str, Any]:
        """Return the numbers of tokens."""
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": generated,
            "total_tokens": self.prompt_tokens + generated,
        }

    def _text(self, token: int) -> str:
        r"""Return the text of one token; parts of characters as `\xe2\x80`, as OpenAI does."""
        return self.token_bytes(token).decode(errors="backslashreplace")

    def _document(self, kind: str, **fields: Any) -> dict[str, Any]:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model, **fields}


class Chat(GeneratedAnswer):
    """The answer of `/v1/chat/completions`."""

    def whole(self, text: str, choices: Sequence[TokenChoice], last: Part) -> dict[str, Any]:
        """Return the answer that is not streamed."""
        choice = {
            "index": 0,
            "message": {"role": "assistant", "content": text, "refusal": None},
            "logprobs": self._logprobs(choices) if self.has_logprobs else None,
            "finish_reason": last.finish,
        }
        return self._document("chat.completion", choices=[choice], usage=self.usage(last.tokens))

    def opening(self) -> list[dict[str, Any]]:
        """Return the chunks before the first token."""
        return [self._chunk({"role": "assistant", "content": ""}, None, None)]

    def chunks(self, part: Part) -> list[dict[str, Any]]:
        """Return the chunks of a part."""
        chunks = []
        if part.text or part.choices:
            logprobs = self._logprobs(part.choices) if part.choices else None
            chunks.append(self._chunk({"content": part.text}, None, logprobs))
        if part.finish:
            chunks.append(self._chunk({}, part.finish, None))
        return chunks

    def usage_chunk(self, generated: int) -> dict[str, Any]:
        """Return the last chunk, for clients that ask for it."""
        return self._document("chat.completion.chunk", choices=[], usage=self.usage(generated))

    def _chunk(self, delta: dict[str, Any], finish: str | None, logprobs: Any) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "logprobs": logprobs, "finish_reason": finish}
        return self._document("chat.completion.chunk", choices=[choice])

    def _logprobs(self, choices: Sequence[TokenChoice]) -> dict[str, Any]:
        return {
            "content": [
                {
                    **self._token(choice.token, choice.logprob),
                    "top_logprobs": [self._token(token, value) for token, value in choice.alternatives],
                }
                for choice in choices
            ]
        }

    def _token(self, token: int, logprob: float) -> dict[str, Any]:
        return {
            "token": self._text(token),
            "logprob": logprob,
            "bytes": list(self.token_bytes(token)),
        }


class Completion(GeneratedAnswer):
    """The answer of `/v1/completions`."""

    def whole(self, text: str, choices: Sequence[TokenChoice], last: Part) -> dict[str, Any]:
        """Return the answer that is not streamed."""
        return self._document(
            "text_completion",
            choices=[self._choice(text, last.finish, self._logprobs(choices) if self.has_logprobs else None)],
            usage=self.usage(last.tokens),
        )

    def opening(self) -> list[dict[str, Any]]:
        """Return the chunks before the first token."""
        return []

    def chunks(self, part: Part) -> list[dict[str, Any]]:
        """Return the chunks of a part."""
        if not (part.text or part.choices or part.finish):
            return []
        logprobs = self._logprobs(part.choices) if part.choices else None
        return [self._document("text_completion", choices=[self._choice(part.text, part.finish, logprobs)])]

    def usage_chunk(self, generated: int) -> dict[str, Any]:
        """Return the last chunk, for clients that ask for it."""
        return self._document("text_completion", choices=[], usage=self.usage(generated))

    def _choice(self, text: str, finish: str | None, logprobs: Any) -> dict[str, Any]:
        return {"index": 0, "text": text, "logprobs": logprobs, "finish_reason": finish}

    def _logprobs(self, choices: Sequence[TokenChoice]) -> dict[str, Any]:
        return {
            "tokens": [self._text(choice.token) for choice in choices],
            "token_logprobs": [choice.logprob for choice in choices],
            "top_logprobs": [self._top(choice) for choice in choices],
            "text_offset": [choice.offset for choice in choices],
        }

    def _top(self, choice: TokenChoice) -> dict[str, float]:
        """Return the chosen token and the most probable ones; of several with one text, the first."""
        named: dict[str, float] = {}
        for token, value in ((choice.token, choice.logprob), *choice.alternatives):
            named.setdefault(self._text(token), value)
        return named

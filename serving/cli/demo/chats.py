"""Streamed chats by an unmodified `openai` client, several at once, with the times of their tokens."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import openai

from serving import clock
from serving.resources.names import ARM_HEADER

TIMEOUT_SECONDS = 60.0
POLL_SECONDS = 0.1


@dataclass
class ChatResult:
    """One chat; times are in seconds from the request."""

    arm: str = ""
    text: str = ""
    first: float = 0.0
    """Time of the first text; 0 without any."""
    end: float = 0.0
    """Time of the end of the answer, or of the error."""
    prompt_tokens: int = 0
    tokens: int = 0
    """Tokens of the answer."""
    error: str = ""

    @property
    def inter_token(self) -> float:
        """Mean seconds between two tokens."""
        return (self.end - self.first) / max(self.tokens - 1, 1)


@dataclass
class Chats:
    """The users of one Inference, and their results."""

    client: openai.AsyncOpenAI
    model: str
    results: list[ChatResult] = field(default_factory=list)
    _users: list[asyncio.Task[None]] = field(default_factory=list)

    @classmethod
    def of(cls, base_url: str, model: str) -> "Chats":
        """Return the users of the Inference with this base URL."""
        client = openai.AsyncOpenAI(
            base_url=f"{base_url}/v1", api_key="none", max_retries=0, timeout=TIMEOUT_SECONDS
        )
        return cls(client, model)

    async def ask(self, question: str, **options: Any) -> ChatResult:
        """Ask one question, and keep the result."""
        result = ChatResult()
        began = clock.monotonic()
        try:
            async for text in self._stream(question, result, options):
                result.first = result.first or clock.monotonic() - began
                result.text += text
        except openai.OpenAIError as error:
            result.error = f"{type(error).__name__}: {error}"
        result.end = clock.monotonic() - began
        self.results.append(result)
        return result

    async def _stream(self, question: str, result: ChatResult, options: dict[str, Any]) -> AsyncIterator[str]:
        stream = await self.client.chat.completions.create(
            model=self.model,
            messages=[{"role": "user", "content": question}],
            stream=True,
            stream_options={"include_usage": True},
            **options,
        )
        async with stream:
            result.arm = stream.response.headers.get(ARM_HEADER, "")
            async for chunk in stream:
                if chunk.usage is not None:
                    result.prompt_tokens = chunk.usage.prompt_tokens
                    result.tokens = chunk.usage.completion_tokens
                for choice in chunk.choices:
                    if choice.delta.content:
                        yield choice.delta.content

    def start(self, users: int, questions: Iterator[str], **options: Any) -> None:
        """Start users who share `questions`: each asks the next one as soon as its last answer has ended."""

        async def use() -> None:
            for question in questions:
                await self.ask(question, **options)

        self._users += [asyncio.create_task(use()) for _ in range(users)]

    async def finish(self, report: Callable[[int], None]) -> None:
        """Wait until no user has questions left; `report` gets the number of results now and then."""
        while self._users:
            report(len(self.results))
            done, _ = await asyncio.wait(self._users, timeout=POLL_SECONDS)
            self._users = [user for user in self._users if user not in done]

    async def end(self) -> None:
        """Stop the users, and close the connections."""
        for user in self._users:
            user.cancel()
        await asyncio.gather(*self._users, return_exceptions=True)
        await self.client.close()


def failures(results: Sequence[ChatResult]) -> list[str]:
    """Return why chats failed."""
    return [result.error or "no text" for result in results if result.error or not result.text]

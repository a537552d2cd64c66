"""Bodies of OpenAI's API: fields, rules and errors. Pure.

https://platform.openai.com/docs/api-reference/chat, .../completions. Fields that this engine cannot honour
are refused where they would change the answer; unknown ones are ignored, as clients add new ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, TypeVar

import orjson
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StrictBool,
    StrictInt,
    ValidationError,
    ValidationInfo,
    field_validator,
)

from serving import errors
from serving.runtimes.open_inference import decoding_memory
from serving.runtimes.transformers.generation import Sampling

MAX_ALTERNATIVES = 20
"""Most tokens whose log probabilities are reported at one place, as OpenAI's for chats."""
MAX_SHOWN = 80
"""Characters of a value in a message."""
TOO_MANY, SERVER_ERROR = 429, 500
"""HTTP statuses; OpenAI's API answers with 429 where the Open Inference Protocol's answers with 503."""
_VALIDATION_FACTOR = 4
"""Memory of parsing and validation together, as a multiple of that of parsing: validation keeps an error for
each wrong element, and these errors take up to three times the memory of parsing."""

Temperature = Annotated[float, Field(ge=0, le=2)]
Share = Annotated[float, Field(gt=0, le=1)]
Tokens = Annotated[StrictInt, Field(ge=1)]
Stop = str | Annotated[list[str], Field(max_length=4)] | None


@dataclass(frozen=True)
class Streaming:
    """The options of a stream."""

    has_usage: bool
    """Whether it ends with the numbers of tokens."""
    has_continuous_usage: bool
    """Whether every part has the numbers of tokens so far."""


class _Body(BaseModel):
    model_config = ConfigDict(extra="ignore")

    default_tokens: ClassVar[int | None] = None
    """The limit of generated tokens where the client sets none; None for the rest of the context."""

    model: str
    stream: StrictBool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: Tokens | None = None
    temperature: Temperature | None = None
    top_p: Share | None = None
    seed: Annotated[StrictInt, Field(ge=-(1 << 63), lt=1 << 63)] | None = None
    stop: Stop = None
    n: Literal[1] | None = None
    best_of: Literal[1] | None = None
    frequency_penalty: Annotated[float, Field(ge=0, le=0)] | None = None
    presence_penalty: Annotated[float, Field(ge=0, le=0)] | None = None
    logit_bias: Annotated[dict[str, float], Field(max_length=0)] | None = None
    ignore_eos: StrictBool = False
    """vLLM's: the model's end-of-text tokens do not end the answer."""

    @property
    def stops(self) -> tuple[str, ...]:
        """The texts that end the answer."""
        given = [self.stop] if isinstance(self.stop, str) else self.stop or []
        return tuple(text for text in given if text)

    @property
    def streaming(self) -> Streaming | None:
        """The stream that is wanted; None for a whole answer."""
        if not self.stream:
            return None
        options = self.stream_options or StreamOptions()
        return Streaming(options.include_usage, options.include_usage and options.continuous_usage_stats)


class StreamOptions(BaseModel):
    """Options of a streamed answer."""

    include_usage: StrictBool = False
    continuous_usage_stats: StrictBool = False
    """vLLM's: every part has the numbers of tokens so far; counts with `include_usage` only."""


class TextPart(BaseModel):
    """A part of a message."""

    type: Literal["text"]
    text: str


class Message(BaseModel):
    """One message of a conversation."""

    model_config = ConfigDict(extra="ignore")

    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[TextPart] | None = None
    name: str | None = None

    def for_template(self) -> dict[str, Any]:
        """Return the message as chat templates know it."""
        content = self.content
        text = content if isinstance(content, str) else "".join(part.text for part in content or ())
        role = "system" if self.role == "developer" else self.role
        return {"role": role, "content": text, **({"name": self.name} if self.name else {})}


class ResponseFormat(BaseModel):
    """The form of the answer."""

    type: Literal["text"]


class ChatBody(_Body):
    """The body of `/v1/chat/completions`."""

    messages: Annotated[list[Message], Field(min_length=1)]
    max_completion_tokens: Tokens | None = None
    logprobs: StrictBool | None = None
    top_logprobs: Annotated[StrictInt, Field(ge=0, le=MAX_ALTERNATIVES)] | None = None
    tools: Annotated[list[Any], Field(max_length=0)] | None = None
    response_format: ResponseFormat | None = None

    @field_validator("top_logprobs")
    @classmethod
    def _has_logprobs(cls, alternatives: int | None, info: ValidationInfo) -> int | None:
        if alternatives and not info.data.get("logprobs"):
            raise ValueError("needs logprobs: true")
        return alternatives

    @property
    def most_tokens(self) -> int | None:
        """The client's limit of generated tokens; None without one."""
        return self.max_completion_tokens or self.max_tokens

    @property
    def sampling(self) -> Sampling:
        """How tokens are chosen."""
        alternatives = (self.top_logprobs or 0) if self.logprobs else None
        return _sampling(self, alternatives)


class CompletionBody(_Body):
    """The body of `/v1/completions`."""

    default_tokens: ClassVar[int | None] = 16
    """As OpenAI's."""

    prompt: str | list[StrictInt] | Annotated[list[str], Field(min_length=1, max_length=1)]
    logprobs: Annotated[StrictInt, Field(ge=0, le=MAX_ALTERNATIVES)] | None = None
    echo: Literal[False] | None = None
    suffix: Literal[""] | None = None

    @property
    def most_tokens(self) -> int | None:
        """The client's limit of generated tokens; None without one."""
        return self.max_tokens

    @property
    def sampling(self) -> Sampling:
        """How tokens are chosen."""
        return _sampling(self, self.logprobs)


def _sampling(body: _Body, alternatives: int | None) -> Sampling:
    return Sampling(
        1.0 if body.temperature is None else body.temperature,
        1.0 if body.top_p is None else body.top_p,
        body.seed,
        alternatives,
    )


Body = TypeVar("Body", bound=_Body)

for _kind in (_Body, ChatBody, CompletionBody):
    _kind.model_rebuild()


def parse(kind: type[Body], body: bytes, memory: int) -> Body:
    """Parse a body that takes at most `memory` bytes when it is decoded.

    Raises:
        errors.ApiError: 400, or 413 for the memory; the message has the field, the rule and the value.
    """
    if len(body) > decoding_memory.SMALL_BYTES:
        decoding_memory.check(_VALIDATION_FACTOR * decoding_memory.of_json(body, len(body)), memory)
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise errors.ApiError(400, "BadRequest", f"body: must be JSON: {error}") from error
    if not isinstance(document, dict):
        raise errors.ApiError(400, "BadRequest", "body: must be an object")
    try:
        return kind.model_validate(document)
    except ValidationError as error:
        first = error.errors()[0]
        value = repr(first["input"])
        shown = value if len(value) < MAX_SHOWN else value[: MAX_SHOWN - 3] + "..."
        rule = first["msg"].removeprefix("Value error, ")  # pydantic's, before a message of our own
        message = f"{_path(first['loc'])}: {rule}, got {shown}"
        raise errors.ApiError(400, "BadRequest", message) from error


def _path(location: tuple[int | str, ...]) -> str:
    """Return a field's path without the names of the types of a union that pydantic tried.

    For example, `("messages", 0, "content", "str")` is `messages[0].content`.
    """
    path = str(location[0])
    for part in location[1:]:
        if isinstance(part, int):
            path += f"[{part}]"
        elif part.isidentifier() and part != "str":
            path += f".{part}"
    return path


def error_document(status: int, message: str, code: str | None = None) -> dict[str, Any]:
    """Return an error in OpenAI's form.

    Its `param` is the field that the message begins with (`FIELD: RULE`); None for the body, or without one.
    """
    kind = "invalid_request_error"
    if status == TOO_MANY:
        kind = "rate_limit_error"
    elif status >= SERVER_ERROR:
        kind = "server_error"
    field, colon, _ = message.partition(": ")
    is_field = bool(colon) and field.replace(".", "").replace("[", "").replace("]", "").isidentifier()
    param = field if is_field and field != "body" else None
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}

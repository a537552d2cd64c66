"""The load of an experiment's trials."""

from typing import Annotated, Literal

from pydantic import Field

from serving.resources.base import ATOMIC, Amount, Base, Name, rules


class KeyOf(Base):
    """A key of a ConfigMap."""

    name: Name
    key: Annotated[str, Field(min_length=1, max_length=253)]


class RequestTemplate(Base):
    """One request; by default the tuner builds it from the model's metadata."""

    method: Literal["GET", "POST", "PUT"] = "POST"
    path: Annotated[str, Field(pattern=r"^/", max_length=2048)]
    headers: Annotated[
        dict[str, str], Field(json_schema_extra={"additionalProperties": {"type": "string"}})
    ] = {}
    body: Annotated[
        str,
        Field(
            max_length=262_144,
            description="Body of the request; `${batch}` and other parameters are substituted.",
        ),
    ] = ""


class LengthRange(Base):
    """Lengths whose logarithm is uniformly distributed: from 16 to 32 is as frequent as from 160 to 320."""

    model_config = {
        **Base.model_config,
        "json_schema_extra": rules(
            ("self.minimum <= self.maximum", "minimum must not be greater than maximum")
        ),
    }
    minimum: Annotated[int, Field(ge=1, le=100_000)]
    maximum: Annotated[int, Field(ge=1, le=100_000)]


class ChatLoad(Base):
    """Streamed chats with OpenAI's API, of generated lengths."""

    prompt_words: Annotated[LengthRange, Field(description="Words of a prompt: about one token each.")] = (
        LengthRange(minimum=16, maximum=256)
    )
    output_tokens: Annotated[LengthRange, Field(description="Tokens of an answer.")] = LengthRange(
        minimum=16, maximum=128
    )


class ExperimentLoad(Base):
    """How requests are generated, and at which levels of load."""

    model_config = {
        **Base.model_config,
        "json_schema_extra": rules(
            (
                (
                    "[has(self.requestTemplate), has(self.requests), has(self.locustfile), has(self.chat)]"
                    ".filter(x, x).size() <= 1"
                ),
                "give at most one of requestTemplate, requests, locustfile and chat",
            ),
            (
                "!has(self.levels) || self.levels.all(level, double(level) > 0.0)",
                "every level must be greater than 0",
            ),
            ("!has(self.maxLevel) || double(self.maxLevel) > 0.0", "maxLevel must be greater than 0"),
            (
                (
                    "!has(self.levels) || !has(self.maxLevel) || self.levels.all(level, double(level) <="
                    " double(self.maxLevel))"
                ),
                "no level may be greater than maxLevel",
            ),
        ),
    }
    mode: Annotated[
        Literal["closed", "open"],
        Field(
            description="closed: a number of users, each waiting for its response; open: a rate of requests"
            " per second, on schedule."
        ),
    ] = "closed"
    request_template: RequestTemplate | None = None
    requests: Annotated[
        KeyOf | None,
        Field(
            description="Recorded requests, one JSON object per line: method, path, headers, body, and at"
            " (seconds)."
        ),
    ] = None
    locustfile: Annotated[
        KeyOf | None, Field(description="A locustfile whose users generate the load instead.")
    ] = None
    chat: Annotated[
        ChatLoad | None, Field(description="Streamed chats of generated lengths, for language models.")
    ] = None
    levels: Annotated[
        list[Amount],
        Field(
            max_length=64,
            json_schema_extra=ATOMIC,
            description="Users, or requests per second, to measure; by default the highest sustainable level"
            " is searched.",
        ),
    ] = []
    max_level: Annotated[
        Amount | None, Field(description="Upper limit of users, or of requests per second.")
    ] = None
    window_seconds: Annotated[
        int,
        Field(
            ge=1,
            le=3600,
            description="Length of a measured window. A window with more than 3,000,000 requests exceeds the"
            " default of the setting tuner.load.window_bytes, and the experiment fails.",
        ),
    ] = 10
    warmup_seconds: Annotated[
        int, Field(ge=0, le=3600, description="Time under load before the first window.")
    ] = 3

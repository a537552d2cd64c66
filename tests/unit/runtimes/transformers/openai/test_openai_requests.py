"""Bodies of OpenAI's API: defaults, and errors that name field, rule and value."""

import orjson
import pytest

from serving import errors
from serving.runtimes.open_inference import decoding_memory
from serving.runtimes.transformers.openai.requests import ChatBody, CompletionBody, error_document, parse

MEMORY = 1 << 20
HELLO = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}


def chat(**fields: object) -> ChatBody:
    return parse(ChatBody, orjson.dumps(HELLO | fields), MEMORY)


def test_defaults_are_openais() -> None:
    body = chat()
    assert (body.sampling.temperature, body.sampling.top_p, body.sampling.seed) == (1.0, 1.0, None)
    assert (body.most_tokens, body.default_tokens) == (None, None)
    completion = parse(CompletionBody, b'{"model": "m", "prompt": "a"}', MEMORY)
    assert (completion.most_tokens, completion.default_tokens) == (None, 16)


def test_zero_temperature_is_no_default() -> None:
    assert chat(temperature=0).sampling.temperature == 0


def test_parts_of_a_message_are_joined_and_a_developer_is_the_system() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    body = chat(messages=[{"role": "developer", "content": parts}])
    assert body.messages[0].for_template() == {"role": "system", "content": "ab"}


def test_newer_limit_of_tokens_wins() -> None:
    assert chat(max_tokens=3, max_completion_tokens=5).most_tokens == 5


def test_unknown_fields_are_ignored() -> None:
    assert chat(store=True, metadata={"a": "b"}).model == "m"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"temperature": 3}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": 10**30}, None),
        ({"n": 2}, "n"),
        ({"frequency_penalty": 0.5}, "frequency_penalty"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "robot", "content": "a"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages[0].content"),
        ({"stop": ["a", "b", "c", "d", "e"]}, "stop"),
        ({"tools": [{}]}, "tools"),
        ({"response_format": {"type": "json_object"}}, "response_format.type"),
        ({"top_logprobs": 21}, "top_logprobs"),
        ({"top_logprobs": 5}, "top_logprobs"),
        ({"top_logprobs": 1, "logprobs": False}, "top_logprobs"),
        ({"top_logprobs": 5, "logprobs": "yes"}, "logprobs"),
        ({"stream": "yes"}, "stream"),
        ({"seed": 1 << 63}, "seed"),
    ],
)
def test_field_is_named_when_it_is_refused(fields: dict[str, object], param: str | None) -> None:
    body = str(HELLO | fields).replace("'", '"').replace("True", "true").replace("False", "false")
    with pytest.raises(errors.ApiError) as refused:
        parse(ChatBody, body.encode(), MEMORY)
    assert refused.value.code == 400
    named = error_document(400, refused.value.message)["error"]["param"]
    if param is not None:
        assert named is not None
        assert named.startswith(param)


def test_refused_alternatives_are_named_with_the_rule_and_the_value() -> None:
    with pytest.raises(errors.ApiError, match=r"^top_logprobs: needs logprobs: true, got 5$"):
        chat(top_logprobs=5)


def test_alternatives_are_chosen_when_log_probabilities_are_wanted() -> None:
    assert chat(logprobs=True, top_logprobs=5).sampling.alternatives == 5
    assert chat(logprobs=True).sampling.alternatives == 0
    assert chat(top_logprobs=0).sampling.alternatives is None


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b"\xff", b'{"model": "m"}'])
def test_body_that_is_no_request_is_refused(body: bytes) -> None:
    with pytest.raises(errors.ApiError):
        parse(ChatBody, body, MEMORY)


def test_a_body_of_many_values_is_refused_before_it_is_parsed() -> None:
    body = b'{"model": "m", "prompt": [' + b"{}," * 30_000 + b"{}]}"
    with pytest.raises(errors.ApiError, match="body: must be decoded within 1048576 bytes") as refused:
        parse(CompletionBody, body, MEMORY)
    assert refused.value.code == 413


def test_errors_of_validation_count_as_memory_of_a_body() -> None:
    body = b'{"model": "m", "prompt": [' + b"[]," * 30_000 + b"[]]}"
    need = decoding_memory.of_json(body, len(body))
    with pytest.raises(errors.ApiError, match="must be decoded within"):
        parse(CompletionBody, body, 3 * need)
    with pytest.raises(errors.ApiError, match="prompt"):
        parse(CompletionBody, body, 4 * need)


def test_errors_have_openais_kinds() -> None:
    kinds = {status: error_document(status, "text")["error"]["type"] for status in (400, 404, 429, 500, 503)}
    assert kinds == {
        400: "invalid_request_error",
        404: "invalid_request_error",
        429: "rate_limit_error",
        500: "server_error",
        503: "server_error",
    }

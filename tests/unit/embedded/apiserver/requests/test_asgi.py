import asyncio
import time
from collections.abc import MutableMapping
from typing import Any

import pytest

from serving import errors
from serving.embedded.apiserver.requests import bodies
from serving.embedded.apiserver.requests.asgi import AsgiRequest, JsonResponse

LIMIT = 1024 * 1024
LINES = 10_000
LONG = b"a:\n" + b"".join(b"  k%d: v\n" % line for line in range(LINES))


def request(body: bytes, media: str) -> AsgiRequest:
    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body}

    headers = [(b"content-type", media.encode())]
    return AsgiRequest({"method": "POST", "headers": headers, "query_string": b""}, receive)


@pytest.mark.parametrize("media", ["application/yaml", "application/apply-patch+yaml; charset=utf-8"])
async def test_other_requests_go_on_while_long_yaml_is_parsed(media: str) -> None:
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(others())
    await asyncio.sleep(0)
    before = turns
    value = await request(LONG, media).value(LIMIT)
    assert turns > before + 1
    assert len(value["a"]) == LINES
    task.cancel()


async def test_long_yaml_that_is_malformed_is_a_400() -> None:
    with pytest.raises(errors.ApiError) as caught:
        await request(LONG + b"]", "application/yaml").value(LIMIT)
    assert caught.value.code == 400


async def test_short_body_is_parsed_by_its_media_type() -> None:
    assert await request(b"a: 1", "application/yaml").value(LIMIT) == {"a": 1}
    assert await request(b'{"a": 1}', "application/json").value(LIMIT) == {"a": 1}


async def test_long_yaml_is_parsed_one_body_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    parsing = most = 0

    def parse(*_: object) -> dict[str, object]:
        nonlocal parsing, most
        parsing += 1
        most = max(most, parsing)
        time.sleep(0.01)  # long enough for another thread to begin
        parsing -= 1
        return {}

    monkeypatch.setattr(bodies, "parse", parse)
    await asyncio.gather(*(request(LONG, "application/yaml").value(LIMIT) for _ in range(4)))
    assert most == 1


@pytest.mark.parametrize("size", [0, 1, 1024 * 1024, 1024 * 1024 + 1, 5_000_000])
async def test_long_response_is_sent_whole_and_in_chunks_between_which_other_requests_go_on(
    size: int,
) -> None:
    body, sent, turns = bytes(index % 251 for index in range(251)) * (size // 251 + 1), [], 0

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append((message, turns))

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def receive() -> dict[str, Any]:
        raise AssertionError("a response reads nothing")

    task = asyncio.create_task(others())
    await JsonResponse(body[:size])({}, receive, send)
    task.cancel()
    (start, _), *chunks = sent
    assert dict(start["headers"])[b"content-length"] == str(size).encode()
    assert b"".join(chunk["body"] for chunk, _ in chunks) == body[:size]
    assert [chunk["more_body"] for chunk, _ in chunks] == [True] * (len(chunks) - 1) + [False]
    assert max(len(chunk["body"]) for chunk, _ in chunks) <= 1024 * 1024
    assert len({turn for _, turn in chunks}) == len(chunks)

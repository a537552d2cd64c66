"""Generated chats have the wanted lengths, are different, and are the same for a seed."""

import json

import numpy as np

from serving.resources.tuning.load import ChatLoad, LengthRange
from tuner.load.generated_chats import chats

LOAD = ChatLoad(
    prompt_words=LengthRange(minimum=10, maximum=1000), output_tokens=LengthRange(minimum=4, maximum=4)
)


def test_lengths_are_within_their_range_and_log_uniform() -> None:
    bodies = [json.loads(request.body) for request in chats(LOAD, "chat", 1)]
    words = np.array([len(body["messages"][0]["content"].split()) for body in bodies])
    assert words.min() >= 10
    assert words.max() <= 1000
    assert 0.35 < (words < 100).mean() < 0.65
    assert {body["max_tokens"] for body in bodies} == {4}


def test_requests_are_streamed_chats_with_numbers_of_tokens() -> None:
    request = chats(LOAD, "chat", 1)[0]
    assert (request.method, request.path, request.stream) == ("POST", "/v1/chat/completions", True)
    body = json.loads(request.body)
    assert (body["model"], body["stream"], body["stream_options"]) == ("chat", True, {"include_usage": True})


def test_same_seed_has_the_same_chats_and_no_two_are_equal() -> None:
    assert chats(LOAD, "chat", 1) == chats(LOAD, "chat", 1) != chats(LOAD, "chat", 2)
    assert len({request.body for request in chats(ChatLoad(), "chat", 3)}) == 256

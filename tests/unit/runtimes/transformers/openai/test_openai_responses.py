"""Log probabilities name the tokens of the model, in the forms of both endpoints."""

from typing import TypeVar

from serving.runtimes.transformers.generation import Part, TokenChoice
from serving.runtimes.transformers.openai.responses import Chat, Completion

TOKENS = (b" Paris", b"\xe2", b"\x80", b"A", b"A")
Kind = TypeVar("Kind", Chat, Completion)
END = Part("", tokens=0, finish="stop")


def answer(kind: type[Kind], *, has_logprobs: bool = True) -> Kind:
    return kind("1", "m", 0, 2, TOKENS.__getitem__, has_logprobs)


def test_token_of_a_chat_has_its_own_text_and_bytes() -> None:
    choices = [TokenChoice(0, -0.1), TokenChoice(1, -0.2, ((2, -0.15), (1, -0.2)))]
    whole = answer(Chat).whole("", choices, END)
    word, half = whole["choices"][0]["logprobs"]["content"]
    assert word == {"token": " Paris", "logprob": -0.1, "bytes": list(b" Paris"), "top_logprobs": []}
    assert (half["token"], half["bytes"]) == ("\\xe2", [0xE2])
    others = [(top["token"], top["bytes"]) for top in half["top_logprobs"]]
    assert others == [("\\x80", [128]), ("\\xe2", [226])]


def test_most_probable_tokens_of_a_completion_keep_parts_of_characters_apart() -> None:
    choices = [TokenChoice(0, -3.0, ((1, -0.5), (2, -1.0)), offset=4)]
    (chunk,) = answer(Completion).chunks(Part(" Paris", tuple(choices), 1))
    assert chunk["choices"][0]["logprobs"] == {
        "tokens": [" Paris"],
        "token_logprobs": [-3.0],
        "top_logprobs": [{" Paris": -3.0, "\\xe2": -0.5, "\\x80": -1.0}],
        "text_offset": [4],
    }


def test_chosen_token_of_a_completion_wins_when_another_has_its_text() -> None:
    whole = answer(Completion).whole("A", [TokenChoice(4, -2.0, ((3, -0.5),))], END)
    assert whole["choices"][0]["logprobs"]["top_logprobs"] == [{"A": -2.0}]


def test_empty_answer_has_empty_log_probabilities_when_they_are_asked_for() -> None:
    assert answer(Chat).whole("", [], END)["choices"][0]["logprobs"] == {"content": []}
    empty = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
    assert answer(Completion).whole("", [], END)["choices"][0]["logprobs"] == empty


def test_answer_has_no_log_probabilities_unless_they_are_asked_for() -> None:
    for kind in (Chat, Completion):
        plain = answer(kind, has_logprobs=False)
        documents = [plain.whole("a", [], END), *plain.chunks(Part("a", tokens=1))]
        assert [document["choices"][0]["logprobs"] for document in documents] == [None, None]

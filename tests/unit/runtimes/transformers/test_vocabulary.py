"""Prompts as tokens that the model knows, and the bytes of tokens."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from serving import errors
from tests.objects.models import checkpoints
from tests.rig import optional_modules

tokenizers = optional_modules.tokenizers()
llama = optional_modules.lazy("serving.runtimes.transformers.llama")
checkpoint = optional_modules.lazy("serving.runtimes.transformers.checkpoint")
vocabulary = optional_modules.lazy("serving.runtimes.transformers.vocabulary")
PAD = "[PAD]"
SMALL = 8192


def bytewise(size: int = 256, *added: str) -> Any:
    """Return the vocabulary of a tokenizer with a token for each byte, of a model with `size` embeddings."""
    tokenizer = llama.byte_level()
    tokenizer.add_special_tokens(list(added))

    def template(messages: Sequence[dict[str, str]], **_: object) -> str:
        return "".join(message["content"] for message in messages)

    fast = SimpleNamespace(backend_tokenizer=tokenizer, chat_template="{{}}", apply_chat_template=template)
    return vocabulary.Vocabulary(fast, frozenset(), size)


def of_words(*words: str) -> Any:
    """Return the vocabulary of a tokenizer as SentencePiece's: words with their spaces, else bytes."""
    tokens = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), *words]
    model = tokenizers.models.BPE(
        {token: id_ for id_, token in enumerate(tokens)}, [], unk_token="<unk>", byte_fallback=True
    )
    tokenizer = tokenizers.Tokenizer(model)
    steps = tokenizers.decoders
    tokenizer.decoder = steps.Sequence(
        [steps.Replace("▁", " "), steps.ByteFallback(), steps.Fuse(), steps.Strip(" ", 1, 0)]
    )
    tokenizer.add_special_tokens(["<|begin▁of▁sentence|>"])
    return vocabulary.Vocabulary(SimpleNamespace(backend_tokenizer=tokenizer), frozenset(), 1000)


@pytest.mark.parametrize(
    ("encode", "message"),
    [
        (lambda known: known.encode("a" + PAD, 10), r"prompt: .* below 256, .*, got 256 \(\[PAD\]\)"),
        (
            lambda known: known.encode("a" * SMALL + PAD, 10_000),
            r"prompt: .* below 256, .*, got 256 \(\[PAD\]\)",
        ),
        (
            lambda known: known.encode_chat([{"role": "user", "content": PAD}], 10),
            r"messages: .* below 256, .*, got 256 \(\[PAD\]\)",
        ),
        (lambda known: known.checked([7, 256]), r"prompt\[1\]: must be a token from 0 to 255, got 256"),
    ],
    ids=["text", "long text", "chat", "tokens"],
)
def test_token_is_refused_when_the_model_has_no_embedding_for_it(
    encode: Callable[[Any], object], message: str
) -> None:
    with pytest.raises(errors.ApiError, match=message) as refused:
        encode(bytewise(256, PAD))
    assert refused.value.code == 400


def test_token_is_known_when_the_model_has_more_embeddings_than_the_tokenizer_tokens() -> None:
    assert list(bytewise(300, PAD).checked([256, 299])) == [256, 299]
    assert list(bytewise(300, PAD).encode(PAD, 10)) == [256]


def test_checkpoint_refuses_added_tokens_when_its_embeddings_were_not_resized(tmp_path: Path) -> None:
    model = checkpoints.write(tmp_path)
    tokenizer = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    tokenizer.add_special_tokens([PAD])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    loaded = checkpoint.load_folder(str(tmp_path), "cpu").vocabulary
    size = model.config.vocab_size
    assert list(loaded.checked([size - 1])) == [size - 1]
    with pytest.raises(errors.ApiError, match=f"below {size}, .*, got {size} "):
        loaded.encode(PAD, 10)


def test_long_text_has_the_tokens_of_its_parts() -> None:
    text = "häuser " * SMALL
    expected = [token for word in [text[:7]] * SMALL for token in bytewise().encode(word, 100)]
    assert list(bytewise().encode(text, len(text))) == expected


def test_other_threads_run_while_a_long_text_becomes_tokens() -> None:
    text = "two words " * 10_000
    known = bytewise()
    turns = 0
    with ThreadPoolExecutor(1) as worker:
        tokens = worker.submit(known.encode, text, len(text))
        while not tokens.done():
            time.sleep(0.001)
            turns += 1
    assert turns > 10  # a few where the tokenizer keeps the lock of the interpreter


def test_text_is_refused_unread_when_it_cannot_fit() -> None:
    known = bytewise(300, "[LONG]")
    context = 2000
    longest = context * len("[LONG]")
    with pytest.raises(errors.ApiError, match=f"prompt: must be less than 2000 tokens, got {longest + 1} c"):
        known.encode("x" * (longest + 1), context)
    assert len(known.encode("x" * longest, context)) == longest  # the caller refuses it


def test_bytes_of_a_text_s_tokens_are_the_text() -> None:
    known = bytewise()
    text = "".join(map(chr, range(0x250))) + " naïve 日本 😀"
    tokens = known.encode(text, len(text))
    assert b"".join(known.token_bytes(token) for token in tokens) == text.encode()
    assert sorted(known.token_bytes(token) for token in range(256)) == [bytes([byte]) for byte in range(256)]


def test_bytes_of_a_word_have_its_space() -> None:
    known = of_words("▁Hello", "Hello", "▁▁", "é")
    data = [known.token_bytes(257 + place) for place in range(4)]
    assert data == [b" Hello", b"Hello", b"  ", "é".encode()]


def test_bytes_of_a_fallback_are_the_byte() -> None:
    assert [of_words().token_bytes(1 + byte) for byte in (0x41, 0xE2)] == [b"A", b"\xe2"]


def test_bytes_of_an_added_token_are_its_text() -> None:
    assert of_words("a").token_bytes(258) == "<|begin▁of▁sentence|>".encode()
    assert bytewise(300, "<a é>").token_bytes(256) == "<a é>".encode()


def test_token_without_a_form_has_no_bytes() -> None:
    assert bytewise(300).token_bytes(299) == b""


def test_bytes_are_those_of_the_decoder_when_its_form_is_unknown() -> None:
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordPiece({"[UNK]": 0, "##ing": 1}, unk_token="[UNK]"))
    tokenizer.decoder = tokenizers.decoders.WordPiece()
    known = vocabulary.Vocabulary(SimpleNamespace(backend_tokenizer=tokenizer), frozenset(), 2)
    assert known.token_bytes(1) == tokenizer.decode([1], skip_special_tokens=False).encode()

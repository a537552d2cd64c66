"""Prompts as tokens that the model knows, and the bytes of tokens."""

from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from serving import errors
from tests.objects import checkpoints
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


@pytest.mark.parametrize(
    ("encode", "message"),
    [
        (lambda known: known.encode("a" + PAD), r"prompt: .* below 256, .*, got 256 \(\[PAD\]\)"),
        (
            lambda known: known.encode("a" * SMALL + PAD),
            r"prompt: .* below 256, .*, got 256 \(\[PAD\]\)",
        ),
        (
            lambda known: known.encode_chat([{"role": "user", "content": PAD}]),
            r"messages: .* below 256, .*, got 256 \(\[PAD\]\)",
        ),
        (lambda known: known.known([7, 256]), r"prompt\[1\]: must be a token from 0 to 255, got 256"),
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
    assert list(bytewise(300, PAD).known([256, 299])) == [256, 299]
    assert list(bytewise(300, PAD).encode(PAD)) == [256]


def test_checkpoint_refuses_added_tokens_when_its_embeddings_were_not_resized(tmp_path: Path) -> None:
    model = checkpoints.write(tmp_path)
    tokenizer = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    tokenizer.add_special_tokens([PAD])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    loaded = checkpoint.load_folder(str(tmp_path), "cpu").vocabulary
    size = model.config.vocab_size
    assert list(loaded.known([size - 1])) == [size - 1]
    with pytest.raises(errors.ApiError, match=f"below {size}, .*, got {size} "):
        loaded.encode(PAD)

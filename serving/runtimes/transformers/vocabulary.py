"""The tokenizer of a checkpoint: applies chat templates, and converts prompts to tokens and tokens to text.

A token is an id, the index of its embedding.
"""

import functools
from array import array
from collections.abc import Sequence
from typing import Any

from tokenizers.decoders import DecodeStream

from serving import errors
from serving.runtimes.transformers.token_bytes import TokenBytes

SMALL_TEXT = 8192
"""Most characters of a text whose conversion holds Python's interpreter lock, for some milliseconds. The
conversion of a longer text releases the lock, so that other threads run."""


class StreamedText:
    """Converts the tokens of one generation to text, one complete character or more at a time."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._stream = DecodeStream(skip_special_tokens=True)

    def add(self, token: int) -> str:
        """Return the characters that this token completes; empty if it completes none."""
        return self._stream.step(self._tokenizer, token) or ""


class Vocabulary:
    """A fast tokenizer of Hugging Face, as `transformers.AutoTokenizer` loads it."""

    def __init__(self, tokenizer: Any, ends: frozenset[int], embeddings: int) -> None:
        """Take the tokenizer.

        Args:
            tokenizer: a `PreTrainedTokenizerFast`, which may have added tokens without an embedding.
            ends: tokens that end a generation.
            embeddings: number of the model's embeddings; tokens from this number on are refused.
        """
        self._tokenizer = tokenizer
        self.ends = ends
        self._embeddings = embeddings

    @property
    def has_chat_template(self) -> bool:
        """Whether conversations can be written as prompts."""
        return bool(self._tokenizer.chat_template)

    def text_decoder(self) -> StreamedText:
        """Return a decoder for one generation."""
        return StreamedText(self._tokenizer.backend_tokenizer)

    def encode(self, text: str, context: int) -> Sequence[int]:
        """Return the tokens of a prompt, with the special tokens that the model expects around it.

        Args:
            text: the prompt.
            context: tokens of the model's context; a text that must have more is refused unconverted.

        Raises:
            errors.ApiError: 400, the text is too long, or the model has no embedding for one of its tokens.
        """
        return self._tokens("prompt", text, context, add_special_tokens=True)

    def encode_chat(self, messages: Sequence[dict[str, Any]], context: int) -> Sequence[int]:
        """Return the tokens of a conversation, up to the beginning of the assistant's next message.

        Args:
            messages: the conversation, in the form that chat templates read.
            context: as for `encode`.

        Raises:
            errors.ApiError: 400, as for `encode`; the checkpoint has no chat template, or its template
                refuses the messages.
        """
        if not self.has_chat_template:
            raise errors.ApiError(400, "BadRequest", "messages: the model has no chat template")
        try:
            text = self._tokenizer.apply_chat_template(
                list(messages), tokenize=False, add_generation_prompt=True
            )
        except Exception as error:  # a template is a program of the checkpoint, and may raise any error
            raise errors.ApiError(
                400, "BadRequest", f"messages: the chat template refuses: {error}"
            ) from error
        # The template writes the special tokens itself.
        return self._tokens("messages", text, context, add_special_tokens=False)

    def _tokens(self, field: str, text: str, context: int, *, add_special_tokens: bool) -> Sequence[int]:
        """Return the tokens of a text; `field` names the text in errors."""
        backend = self._tokenizer.backend_tokenizer
        if len(text) <= SMALL_TEXT:
            encoding = backend.encode(text, add_special_tokens=add_special_tokens)
        elif len(text) > context * self._longest_token:
            rule = f"must be less than {context} tokens"
            raise errors.ApiError(400, "BadRequest", f"{field}: {rule}, got {len(text)} characters")
        else:  # of the tokenizer's methods only those of batches release the interpreter lock
            (encoding,) = backend.encode_batch_fast([text], add_special_tokens=add_special_tokens)
        tokens = encoding.ids
        highest = max(tokens, default=0)
        if highest >= self._embeddings:  # the model would fail, and with it all requests of the batch
            shown = backend.id_to_token(highest)
            rule = f"must have tokens below {self._embeddings}, as the model has no further embeddings"
            raise errors.ApiError(400, "BadRequest", f"{field}: {rule}, got {highest} ({shown})")
        return _compact(tokens)

    @functools.cached_property
    def _longest_token(self) -> int:
        """Characters of the longest token, which bound the characters of a text of `context` tokens."""
        return max(map(len, self._tokenizer.backend_tokenizer.get_vocab()))

    def token_bytes(self, token: int) -> bytes:
        """Return the bytes of one token, for reports of log probabilities."""
        return self._token_bytes.of(token)

    @functools.cached_property
    def _token_bytes(self) -> TokenBytes:
        return TokenBytes(self._tokenizer.backend_tokenizer)

    def checked(self, tokens: Sequence[int]) -> Sequence[int]:
        """Return the tokens of a prompt that a client sent as tokens.

        Raises:
            errors.ApiError: 400, the model has no embedding for one of them.
        """
        for place, token in enumerate(tokens):
            if not 0 <= token < self._embeddings:
                rule = f"must be a token from 0 to {self._embeddings - 1}"
                raise errors.ApiError(400, "BadRequest", f"prompt[{place}]: {rule}, got {token}")
        return _compact(tokens)


def _compact(tokens: Sequence[int]) -> Sequence[int]:
    """Return the tokens in four bytes each: the prompts of all waiting requests are kept, and an `int` in a
    list takes 36 bytes with its reference.
    """
    return array("i", tokens)

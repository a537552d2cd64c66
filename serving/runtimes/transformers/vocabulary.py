"""The tokenizer of a checkpoint: chat templates, prompts to tokens, tokens to text."""

import functools
from array import array
from collections.abc import Sequence
from typing import Any

from tokenizers.decoders import DecodeStream

from serving import errors
from serving.runtimes.transformers.token_bytes import TokenBytes

SMALL_TEXT = 8192
"""Characters of a text that becomes tokens at once, within some milliseconds. A longer one lets other threads
run meanwhile."""


class StreamedText:
    """The text of one generation, complete characters at a time."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._stream = DecodeStream(skip_special_tokens=True)

    def add(self, token: int) -> str:
        """Return the text that is complete with this token."""
        return self._stream.step(self._tokenizer, token) or ""


class Vocabulary:
    """A Hugging Face tokenizer of the fast kind, as `transformers.AutoTokenizer` loads it."""

    def __init__(self, tokenizer: Any, ends: frozenset[int], size: int) -> None:
        """Take the tokenizer.

        Args:
            tokenizer: may have tokens that were added without an embedding.
            ends: tokens that end a generation.
            size: embeddings of the model.
        """
        self._tokenizer = tokenizer
        self.ends = ends
        self._size = size

    @property
    def has_chat_template(self) -> bool:
        """Whether conversations can be written as prompts."""
        return bool(self._tokenizer.chat_template)

    def text_decoder(self) -> StreamedText:
        """Return a decoder for one generation."""
        return StreamedText(self._tokenizer.backend_tokenizer)

    def encode(self, text: str, context: int) -> Sequence[int]:
        """Return the tokens of a prompt, with those that the model expects at its beginning.

        Args:
            text: the prompt.
            context: tokens of a prompt, at most; a text that cannot be so short is refused unread.

        Raises:
            errors.ApiError: 400, the text is too long, or the model has no embedding for one of its tokens.
        """
        return self._tokens("prompt", text, context, has_beginning=False)

    def encode_chat(self, messages: Sequence[dict[str, Any]], context: int) -> Sequence[int]:
        """Return the tokens of a conversation after which the assistant speaks.

        Args:
            messages: the conversation.
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
        except Exception as error:  # templates raise what they like
            raise errors.ApiError(
                400, "BadRequest", f"messages: the chat template refuses: {error}"
            ) from error
        return self._tokens("messages", text, context, has_beginning=True)

    def _tokens(self, field: str, text: str, context: int, *, has_beginning: bool) -> Sequence[int]:
        """Return the tokens of a text, with those of its beginning if it has none."""
        backend = self._tokenizer.backend_tokenizer
        if len(text) <= SMALL_TEXT:
            encoding = backend.encode(text, add_special_tokens=not has_beginning)
        elif len(text) > context * self._longest_token:
            rule = f"must be less than {context} tokens"
            raise errors.ApiError(400, "BadRequest", f"{field}: {rule}, got {len(text)} characters")
        else:  # only batches let other threads run
            (encoding,) = backend.encode_batch_fast([text], add_special_tokens=not has_beginning)
        tokens = encoding.ids
        highest = max(tokens, default=0)
        if highest >= self._size:  # it would end the answers of the whole batch
            shown = backend.id_to_token(highest)
            rule = f"must have tokens below {self._size}, as the model has no further embeddings"
            raise errors.ApiError(400, "BadRequest", f"{field}: {rule}, got {highest} ({shown})")
        return _compact(tokens)

    @functools.cached_property
    def _longest_token(self) -> int:
        """Characters of the longest token."""
        return max(map(len, self._tokenizer.backend_tokenizer.get_vocab()))

    def token_bytes(self, token: int) -> bytes:
        """Return the bytes of one token, for reports of log probabilities."""
        return self._token_bytes.of(token)

    @functools.cached_property
    def _token_bytes(self) -> TokenBytes:
        return TokenBytes(self._tokenizer.backend_tokenizer)

    def known(self, tokens: Sequence[int]) -> Sequence[int]:
        """Return tokens that a client gave.

        Raises:
            errors.ApiError: 400, the model has no embedding for one of them.
        """
        for place, token in enumerate(tokens):
            if not 0 <= token < self._size:
                rule = f"must be a token from 0 to {self._size - 1}"
                raise errors.ApiError(400, "BadRequest", f"prompt[{place}]: {rule}, got {token}")
        return _compact(tokens)


def _compact(tokens: Sequence[int]) -> Sequence[int]:
    """Return tokens of four bytes each: those of all requests that wait are kept, and a number takes 36."""
    return array("i", tokens)

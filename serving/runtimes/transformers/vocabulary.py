"""The tokenizer of a checkpoint: chat templates, prompts to tokens, tokens to text."""

from collections.abc import Sequence
from typing import Any

from tokenizers.decoders import DecodeStream

from serving import errors


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

    def encode(self, text: str) -> tuple[int, ...]:
        """Return the tokens of a prompt, with those that the model expects at its beginning.

        Raises:
            errors.ApiError: 400, the model has no embedding for one of them.
        """
        return self._embedded("prompt", self._tokenizer.backend_tokenizer.encode(text).ids)

    def encode_chat(self, messages: Sequence[dict[str, Any]]) -> tuple[int, ...]:
        """Return the tokens of a conversation after which the assistant speaks.

        Raises:
            errors.ApiError: 400, the checkpoint has no chat template, its template refuses the messages, or the
                model has no embedding for one of the tokens.
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
        # The template writes the tokens of the beginning itself.
        tokens = self._tokenizer.backend_tokenizer.encode(text, add_special_tokens=False).ids
        return self._embedded("messages", tokens)

    def _embedded(self, field: str, tokens: Sequence[int]) -> tuple[int, ...]:
        """Return tokens that all have an embedding; another one would end the answers of the whole batch."""
        highest = max(tokens, default=0)
        if highest >= self._size:
            text = self._tokenizer.backend_tokenizer.id_to_token(highest)
            rule = f"must have tokens below {self._size}, as the model has no further embeddings"
            raise errors.ApiError(400, "BadRequest", f"{field}: {rule}, got {highest} ({text})")
        return tuple(tokens)

    def piece(self, token: int) -> str:
        """Return the text of one token, for reports of log probabilities."""
        return str(self._tokenizer.backend_tokenizer.decode([token], skip_special_tokens=False))

    def known(self, tokens: Sequence[int]) -> tuple[int, ...]:
        """Return tokens that a client gave.

        Raises:
            errors.ApiError: 400, the model has no embedding for one of them.
        """
        for place, token in enumerate(tokens):
            if not 0 <= token < self._size:
                rule = f"must be a token from 0 to {self._size - 1}"
                raise errors.ApiError(400, "BadRequest", f"prompt[{place}]: {rule}, got {token}")
        return tuple(tokens)

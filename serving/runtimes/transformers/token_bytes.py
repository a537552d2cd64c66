"""The bytes of single tokens.

A tokenizer's own decoder would drop the space before a word, and replace a part of a character.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from transformers.convert_slow_tokenizer import bytes_to_unicode

_BYTE_OF_LETTER = {letter: byte for byte, letter in bytes_to_unicode().items()}
"""Byte-level tokenizers, such as GPT-2's, write each byte of a token as one printable letter."""
_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")
"""Token of one byte, as tokenizers with byte fallback write it."""
_STEPS_ON_TEXT = {"Fuse", "Strip"}
"""Decoder steps on the joined text of all tokens, which a single token skips."""


class TokenBytes:
    """Converts the tokens of one tokenizer into bytes."""

    def __init__(self, tokenizer: Any) -> None:
        """Args: tokenizer: a `tokenizers.Tokenizer`."""
        self._tokenizer = tokenizer
        self._added = {id_: token.content for id_, token in tokenizer.get_added_tokens_decoder().items()}
        self._steps = _steps(tokenizer.decoder)

    def of(self, token: int) -> bytes:
        """Return the bytes of a token by its id; empty for an id that the tokenizer does not know."""
        if (added := self._added.get(token)) is not None:
            return str(added).encode()
        entry = self._tokenizer.id_to_token(token)
        if entry is None:
            return b""
        data = _bytes(entry, self._steps)
        if data is not None:
            return data
        return str(self._tokenizer.decode([token], skip_special_tokens=False)).encode()


def _steps(decoder: Any) -> Sequence[Mapping[str, Any]]:
    """Return the steps of a `tokenizers` decoder, as `tokenizer.json` has them."""
    if decoder is None:
        return ()
    document = orjson.loads(decoder.__getstate__())  # the decoder as JSON
    steps: Sequence[Mapping[str, Any]]
    steps = document["decoders"] if document["type"] == "Sequence" else (document,)
    return steps


def _bytes(entry: str, steps: Sequence[Mapping[str, Any]]) -> bytes | None:
    """Return the bytes of an entry of the vocabulary; None where a decoder step is unknown.

    Args:
        entry: the token as the vocabulary spells it, such as `Ġthe`, `▁the` or `<0x0A>`.
        steps: the decoder's steps, in order.
    """
    for step in steps:
        match step:
            case {"type": "ByteLevel"}:
                is_of_bytes = all(letter in _BYTE_OF_LETTER for letter in entry)
                return bytes(map(_BYTE_OF_LETTER.__getitem__, entry)) if is_of_bytes else entry.encode()
            case {"type": "ByteFallback"}:
                if byte := _BYTE_TOKEN.fullmatch(entry):
                    return bytes([int(byte[1], 16)])
            case {"type": "Replace", "pattern": {"String": pattern}, "content": content}:
                entry = entry.replace(pattern, content)
            case {"type": "Metaspace", "replacement": space}:
                entry = entry.replace(space, " ")
            case {"type": kind} if kind not in _STEPS_ON_TEXT:
                return None
    return entry.encode()

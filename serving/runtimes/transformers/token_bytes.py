"""The bytes of single tokens: a decoder would drop the space before a word, and parts of a character."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from transformers.convert_slow_tokenizer import bytes_to_unicode

_BYTE_OF_LETTER = {letter: byte for byte, letter in bytes_to_unicode().items()}
"""The alphabet of tokenizers of bytes."""
_FALLBACK = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_JOINING = {"Fuse", "Strip"}
"""Steps of a decoder that concern a token and its neighbours."""


class TokenBytes:
    """The vocabulary of a tokenizer, as bytes."""

    def __init__(self, tokenizer: Any) -> None:
        """Args: tokenizer: a `tokenizers.Tokenizer`."""
        self._tokenizer = tokenizer
        self._added = {id_: token.content for id_, token in tokenizer.get_added_tokens_decoder().items()}
        self._steps = _steps(tokenizer.decoder)

    def of(self, token: int) -> bytes:
        """Return the bytes of a token; none for one that the tokenizer does not know."""
        if (added := self._added.get(token)) is not None:
            return str(added).encode()
        form = self._tokenizer.id_to_token(token)
        if form is None:
            return b""
        data = _bytes(form, self._steps)
        if data is not None:
            return data
        return str(self._tokenizer.decode([token], skip_special_tokens=False)).encode()


def _steps(decoder: Any) -> Sequence[Mapping[str, Any]]:
    """Return the steps of a decoder, as `tokenizer.json` has them."""
    if decoder is None:
        return ()
    document = orjson.loads(decoder.__getstate__())
    steps: Sequence[Mapping[str, Any]]
    steps = document["decoders"] if document["type"] == "Sequence" else (document,)
    return steps


def _bytes(form: str, steps: Sequence[Mapping[str, Any]]) -> bytes | None:
    """Return the bytes of a token's form in the vocabulary; None where a step is unknown."""
    for step in steps:
        match step:
            case {"type": "ByteLevel"}:
                is_of_bytes = all(letter in _BYTE_OF_LETTER for letter in form)
                return bytes(map(_BYTE_OF_LETTER.__getitem__, form)) if is_of_bytes else form.encode()
            case {"type": "ByteFallback"}:
                if byte := _FALLBACK.fullmatch(form):
                    return bytes([int(byte[1], 16)])
            case {"type": "Replace", "pattern": {"String": pattern}, "content": content}:
                form = form.replace(pattern, content)
            case {"type": "Metaspace", "replacement": space}:
                form = form.replace(space, " ")
            case {"type": kind} if kind not in _JOINING:
                return None
    return form.encode()

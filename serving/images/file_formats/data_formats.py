"""Recognises formats that hold data alone: safetensors, ONNX, SentencePiece, NumPy without objects, text.
Pure.

The binary formats of models pass only if all of the file has their structure, so that nothing hides behind
it.
"""

import ast
import codecs
import json
import math
import re
from typing import Any, NamedTuple

from serving.images.file_formats.content import HEAD, Content, Unexamined
from serving.images.file_formats.message_fields import BYTES, MOST_FIELDS, VARINT, fields

_LONGEST_HEADER = 16 * 1024 * 1024
"""Of a safetensors file; the headers of the largest public models have 1 MiB."""
_ONNX = {1: VARINT, 5: VARINT} | dict.fromkeys((2, 3, 4, 6, 7, 8, 14, 20, 25, 26), BYTES)
"""Fields of ModelProto and their wire types (https://github.com/onnx/onnx, onnx/onnx.proto)."""
_ONNX_GRAPH = 7
_SENTENCE_PIECE = dict.fromkeys((1, 2, 3, 4, 5), BYTES)
"""Fields of ModelProto (https://github.com/google/sentencepiece, src/sentencepiece_model.proto)."""
_SENTENCE_PIECE_PIECES = 1
NUMPY_MAGIC = b"\x93NUMPY"
_PLAIN_TYPE = re.compile(r"[<>|=]?(?P<kind>[biufcmMSUV])(?P<size>\d+)(\[\w+\])?", re.ASCII)
"""Elements of a NumPy file that are no Python objects, as NumPy writes them; it reads many other words for
objects, which are a pickle (numpy/lib/_format_impl.py).
"""
_UCS4 = 4
"""Bytes of a character in an array of texts."""
_TEXT_CHUNK = 1024 * 1024
_PYTHON_TAG = re.compile(rb"!!(python/|[^\s%]{0,256}%)|!<[^\s>]{0,256}(python/|%)|%TAG ")
"""Of YAML: names an object of Python to make, in full, with escapes, or by a handle."""
_TAG_OVERLAP = 1024
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0e-\x1a\x1c-\x1f\x7f]")
"""Characters that text does not have: all controls but tab, line ends, form feed and escape."""


def is_safetensors(content: Content) -> bool:
    """Whether a header describes every byte that follows it (https://github.com/huggingface/safetensors)."""
    length = int.from_bytes(content.read(0, 8), "little")
    if not 2 <= length <= min(_LONGEST_HEADER, content.size - 8):
        return False
    try:
        header = json.loads(content.read(8, length))
        ranges = sorted(_range(tensor) for name, tensor in header.items() if name != "__metadata__")
    except (Unexamined, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return False
    end = 0
    for first, last in ranges:
        if first != end or last < first:
            return False
        end = last
    return end == content.size - 8 - length


def _range(tensor: Any) -> tuple[int, int]:
    first, last = tensor["data_offsets"]
    if type(first) is not int or type(last) is not int or not isinstance(tensor["dtype"], str):
        raise TypeError
    return first, last


def is_onnx(content: Content) -> bool:
    """Whether the file is a message of ONNX's fields with a graph."""
    return _is_message(content, _ONNX, _ONNX_GRAPH)


def is_sentence_piece(content: Content) -> bool:
    """Whether the file is a message of SentencePiece's fields with a vocabulary."""
    return _is_message(content, _SENTENCE_PIECE, _SENTENCE_PIECE_PIECES)


def _is_message(content: Content, wire_types: dict[int, int], required: int) -> bool:
    numbers = set()
    try:
        for count, field in enumerate(fields(content, 0, content.size)):
            if count == MOST_FIELDS or wire_types.get(field.number) != field.wire_type:
                return False
            numbers.add(field.number)
    except (Unexamined, ValueError):
        return False
    return required in numbers


def has_numpy_objects(content: Content) -> bool:
    """Whether a file with NumPy's magic number has Python objects as elements, or no readable header."""
    header = _numpy_header(content)
    return header is None or header.element_bytes is None


def is_numpy(content: Content) -> bool:
    """Whether a file with NumPy's magic number ends with its array: programs may read several of a file."""
    header = _numpy_header(content)
    if header is None or header.element_bytes is None:
        return False
    return header.size + header.elements * header.element_bytes == content.size


class _NumpyHeader(NamedTuple):
    size: int
    elements: int
    element_bytes: int | None
    """None for Python objects."""


def _numpy_header(content: Content) -> _NumpyHeader | None:
    prefix = 2 if content.head[6:7] == b"\x01" else 4
    begin = 8 + prefix
    end = begin + int.from_bytes(content.head[8:begin], "little")
    if end > len(content.head):
        return None
    try:
        fields = ast.literal_eval(content.head[begin:end].decode("latin-1"))
        return _NumpyHeader(end, _count(fields["shape"]), _bytes_of(fields["descr"]))
    except (SyntaxError, ValueError, TypeError, LookupError, MemoryError, RecursionError):
        return None


def _bytes_of(elements: Any) -> int | None:
    """Return the size of a type: by its name, of an array in a record, or of all fields of a record."""
    if isinstance(elements, str):
        name = _PLAIN_TYPE.fullmatch(elements)
        return None if name is None else int(name["size"]) * (_UCS4 if name["kind"] == "U" else 1)
    if isinstance(elements, tuple):
        return _times(_bytes_of(elements[0]), elements[1])
    total = 0
    for _, part, *shapes in elements:
        size = _times(_bytes_of(part), *shapes)
        if size is None:
            return None
        total += size
    return total


def _times(size: int | None, shape: Any = ()) -> int | None:
    return None if size is None else size * _count(shape)


def _count(shape: Any) -> int:
    """Return the elements of an array.

    Raises:
        ValueError: the shape is none.
    """
    lengths = shape if isinstance(shape, tuple) else (shape,)
    if not all(type(length) is int and length >= 0 for length in lengths):
        raise ValueError
    return math.prod(lengths)


def is_text(content: Content) -> bool:
    """Whether all that is examined is UTF-8 without control characters; an empty file is text."""
    decoder, at = codecs.getincrementaldecoder("utf-8")(), 0
    try:
        while chunk := content.beginning(at, _TEXT_CHUNK if at else HEAD):
            at += len(chunk)
            if _CONTROL.search(decoder.decode(chunk, final=at == content.size)):
                return False
    except UnicodeDecodeError:
        return False
    return True


def has_python_tag(content: Content) -> bool:
    """Whether text, read as YAML, may make objects of Python."""
    places = range(0, content.examined, _TEXT_CHUNK)
    return any(_PYTHON_TAG.search(content.beginning(at, _TEXT_CHUNK + _TAG_OVERLAP)) for at in places)

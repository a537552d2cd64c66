"""Recognises formats that hold data alone: safetensors, ONNX, SentencePiece, NumPy without objects, text.
Pure.

A file passes as a binary format only if the format's structure accounts for all of its bytes, so that no code
can hide behind the data.
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
"""Most bytes of the header of a safetensors file; the headers of the largest public models have 1 MiB."""
_ONNX = {1: VARINT, 5: VARINT} | dict.fromkeys((2, 3, 4, 6, 7, 8, 14, 20, 25, 26), BYTES)
"""Fields of ModelProto and their wire types (https://github.com/onnx/onnx, onnx/onnx.proto)."""
_ONNX_GRAPH = 7
"""Number of the field with the graph, which every model has."""
_SENTENCE_PIECE = dict.fromkeys((1, 2, 3, 4, 5), BYTES)
"""Fields of ModelProto (https://github.com/google/sentencepiece, src/sentencepiece_model.proto)."""
_SENTENCE_PIECE_PIECES = 1
"""Number of the field with a word of the vocabulary."""
NUMPY_MAGIC = b"\x93NUMPY"
_PLAIN_TYPE = re.compile(r"[<>|=]?(?P<kind>[biufcmMSUV])(?P<size>\d+)(\[\w+\])?", re.ASCII)
"""Types of elements that are no Python objects, as NumPy writes them. Any other text counts as objects,
which are a pickle: NumPy reads many names of them (numpy/lib/_format_impl.py).
"""
_UCS4 = 4
"""Bytes of a character in an array of texts (kind `U`)."""
_TEXT_CHUNK = 1024 * 1024
"""Bytes of a text that are read at a time."""
_PYTHON_TAG = re.compile(rb"!!(python/|[^\s%]{0,256}%)|!<[^\s>]{0,256}(python/|%)|%TAG[ \t]")
"""Tags of YAML that make a parser create a Python object: named in full, with escapes (`%`), or by a handle
that `%TAG` defines."""
_TAG_OVERLAP = 1024
"""Bytes behind a chunk that are searched with it; every tag that `_PYTHON_TAG` matches is shorter."""
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
    for tensor_begin, tensor_end in ranges:
        if tensor_begin != end or tensor_end < tensor_begin:
            return False
        end = tensor_end
    return end == content.size - 8 - length


def _range(tensor: Any) -> tuple[int, int]:
    """Return the offsets of a tensor's first byte and behind its last one, from the end of the header."""
    begin, end = tensor["data_offsets"]
    if type(begin) is not int or type(end) is not int or not isinstance(tensor["dtype"], str):
        raise TypeError
    return begin, end


def is_onnx(content: Content) -> bool:
    """Whether the file is a message of ONNX's fields with a graph."""
    return _is_message(content, _ONNX, _ONNX_GRAPH)


def is_sentence_piece(content: Content) -> bool:
    """Whether the file is a message of SentencePiece's fields with a vocabulary."""
    return _is_message(content, _SENTENCE_PIECE, _SENTENCE_PIECE_PIECES)


def _is_message(content: Content, wire_types: dict[int, int], required: int) -> bool:
    """Whether the whole file is a protobuf message with only these fields, and with the field `required`.

    `wire_types` has the wire type of each field by its number.
    """
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
    """Whether a file with NumPy's magic number ends with its array: programs may read a second array behind
    it, which could be a pickle.
    """
    header = _numpy_header(content)
    if header is None or header.element_bytes is None:
        return False
    return header.size + header.elements * header.element_bytes == content.size


class _NumpyHeader(NamedTuple):
    size: int
    """Bytes before the first element."""
    elements: int
    """Number of elements of the array."""
    element_bytes: int | None
    """None for Python objects."""


def _numpy_header(content: Content) -> _NumpyHeader | None:
    """Return the header of a file with NumPy's magic number; None if it cannot be read."""
    length_bytes = 2 if content.head[6:7] == b"\x01" else 4  # by the version of the format
    begin = 8 + length_bytes  # behind the magic number, the version and the length
    end = begin + int.from_bytes(content.head[8:begin], "little")
    if end > len(content.head):
        return None
    try:
        header = ast.literal_eval(content.head[begin:end].decode("latin-1"))
        return _NumpyHeader(end, _count(header["shape"]), _bytes_of(header["descr"]))
    except (SyntaxError, ValueError, TypeError, LookupError, MemoryError, RecursionError):
        return None


def _bytes_of(descr: Any) -> int | None:
    """Return the bytes of one element of a type; None if it holds Python objects.

    `descr` describes the type as in NumPy's header: a name such as `<f8`, (type, shape) of an array in a
    record, or a list of (name, type) and (name, type, shape), the fields of a record.
    """
    if isinstance(descr, str):
        plain = _PLAIN_TYPE.fullmatch(descr)
        if plain is None:
            return None
        return int(plain["size"]) * (_UCS4 if plain["kind"] == "U" else 1)
    if isinstance(descr, tuple):
        return _times(_bytes_of(descr[0]), descr[1])
    total = 0
    for _, field_type, *shapes in descr:
        size = _times(_bytes_of(field_type), *shapes)
        if size is None:
            return None
        total += size
    return total


def _times(size: int | None, shape: Any = ()) -> int | None:
    """Return the bytes of an array of elements of `size` bytes; None if the size is None."""
    return None if size is None else size * _count(shape)


def _count(shape: Any) -> int:
    """Return the number of elements of an array; a shape may be one length.

    Raises:
        ValueError: it is not a shape.
    """
    lengths = shape if isinstance(shape, tuple) else (shape,)
    if not all(type(length) is int and length >= 0 for length in lengths):
        raise ValueError
    return math.prod(lengths)


def is_text(content: Content) -> bool:
    """Whether all that is examined is UTF-8 without control characters; an empty file is text."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    at = 0
    try:
        # The first chunk is in memory, and shows of most binary files that they are no text.
        while chunk := content.beginning(at, _TEXT_CHUNK if at else HEAD):
            at += len(chunk)
            if _CONTROL.search(decoder.decode(chunk, final=at == content.size)):
                return False
    except UnicodeDecodeError:
        return False
    return True


def has_python_tag(content: Content) -> bool:
    """Whether a YAML parser may create Python objects from a text."""
    chunk_offsets = range(0, content.examined, _TEXT_CHUNK)
    return any(_PYTHON_TAG.search(content.beginning(at, _TEXT_CHUNK + _TAG_OVERLAP)) for at in chunk_offsets)

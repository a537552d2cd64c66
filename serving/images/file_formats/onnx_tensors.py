"""Finds the files in which an ONNX model keeps its tensors. Pure.

The messages and their fields are in https://github.com/onnx/onnx, onnx/onnx.proto; the description of a file
is in onnx/docs/ExternalData.md.
"""

import posixpath
from itertools import islice

from serving import protobuf
from serving.images.file_formats.content import Content, Unexamined
from serving.images.file_formats.message_fields import BYTES, MOST_FIELDS, fields

_MODEL, _GRAPH, _FUNCTION, _NODE, _ATTRIBUTE, _TENSOR, _ENTRY = range(7)
"""Kinds of messages. An entry is one pair of key and value of a tensor's `external_data`."""
_PARTS: dict[tuple[int, int], int] = {
    (_MODEL, 7): _GRAPH,
    (_MODEL, 25): _FUNCTION,
    (_GRAPH, 1): _NODE,
    (_GRAPH, 5): _TENSOR,
    (_FUNCTION, 7): _NODE,
    (_NODE, 5): _ATTRIBUTE,
    (_ATTRIBUTE, 5): _TENSOR,
    (_ATTRIBUTE, 6): _GRAPH,
    (_ATTRIBUTE, 10): _TENSOR,
    (_ATTRIBUTE, 11): _GRAPH,
    (_TENSOR, 13): _ENTRY,
}
"""Kind of the message in a field, by the kind of the message around it and the field's number: the ways from
a model to `external_data`, but for those through training information and sparse tensors. A file that only
these name is none of the results."""
_KEY, _VALUE = 1, 2
"""Numbers of the fields of an entry."""
_LOCATION = b"location"
_LONGEST_ENTRY = 8 * 1024
"""Most bytes of an entry; a path has at most 4 KiB."""


def files(path: str, content: Content) -> frozenset[str]:
    """Return the paths of the files in which a model keeps tensors; none if it cannot be read to its end.

    `path` is that of the model; the results are relative to the same directory as `path`.
    """
    directory = posixpath.dirname(path)
    try:
        locations = {location.decode() for location in _locations(content)}
    except (Unexamined, ValueError):
        return frozenset()
    return frozenset(posixpath.normpath(posixpath.join(directory, location)) for location in locations)


def _locations(content: Content) -> frozenset[bytes]:
    """Return the paths of the files with tensors, relative to the model's directory, as the model has them.

    Raises:
        Unexamined, ValueError: the model cannot be read to its end, or has more than `MOST_FIELDS` fields.
    """
    locations = set()
    fields_left = MOST_FIELDS
    messages = [(_MODEL, 0, content.size)]  # kind, offset of the first byte, offset behind the last one
    while messages:
        kind, begin, end = messages.pop()
        for field in islice(fields(content, begin, end), fields_left + 1):
            fields_left -= 1
            part = _PARTS.get((kind, field.number))
            if part is None or field.wire_type != BYTES:
                continue
            if part != _ENTRY:
                messages.append((part, field.begin, field.end))
            elif field.end - field.begin <= _LONGEST_ENTRY:
                entry = dict(protobuf.parts(content.read(field.begin, field.end - field.begin)))
                if entry.get(_KEY) == _LOCATION:
                    locations.add(protobuf.content(entry.get(_VALUE, b"")))
        if fields_left < 0:
            raise ValueError
    return frozenset(locations)

"""Recognises compressed streams and tar archives, which programs unpack before they load a pickle. Pure.

joblib unpacks these streams by their first bytes under any file name (joblib/compressor.py), and old versions
of PyTorch read a tar.
"""

import io
import re
import tarfile
import zlib

from serving.images.file_formats.content import HEAD, Content
from serving.images.file_formats.pickles import is_pickle

_STREAMS = re.compile(
    rb"\x1f\x8b\x08|BZh[1-9](1AY&SY|\x17rE8P\x90)|\xfd7zXZ\0|\x5d\0.{11}\0|"
    rb"\x04\x22\x4d\x18|\x28\xb5\x2f\xfd|ZF0x|ZF[\s+\-_xX0-9a-fA-F]{17}",
    re.DOTALL,
)
"""First bytes of gzip, bzip2, xz, lzma (whose data begin with a zero), lz4, zstd, and of joblib's format
before 0.10: `ZF`, and 19 characters, of which 17 are checked here, with a size in any form that `int` reads
in base 16."""
_ZLIB = re.compile(rb"\x78[\x01\x5e\x9c\xda]")
"""zlib's header. It has only two bytes, and text may begin with one of these headers (`x^`)."""
_PIECE = 256
"""Compressed bytes unpacked at a time. Of a damaged stream, the pieces before the damaged one count."""
_UNKNOWN_SIZE = 1 << 62
"""Size of a `Content` of unpacked data of which only the beginning is unpacked: larger than any real size."""
_TAR_HEADER = 512


def is_compressed(content: Content) -> bool:
    """Whether the file begins as a compressed stream does; a zlib stream counts only if it has a pickle."""
    if _STREAMS.match(content.head):
        return True
    return has_zlib_header(content) and is_pickle(_unpacked(content))


def has_zlib_header(content: Content) -> bool:
    """Whether the first two bytes are zlib's."""
    return _ZLIB.match(content.head) is not None


def _unpacked(content: Content) -> Content:
    """Return the first bytes of a zlib stream's data: about `HEAD`, up to the end or the first damaged piece.

    The size of the result is the number of these bytes if no more data can follow, else `_UNKNOWN_SIZE`.
    """
    stream = zlib.decompressobj()
    unpacked = b""
    at = 0
    is_at_end = False
    while len(unpacked) < HEAD and not is_at_end and at < content.examined:
        packed = content.beginning(at, _PIECE)
        at += len(packed)
        try:
            unpacked += stream.decompress(packed, HEAD)
        except zlib.error:
            is_at_end = True
        is_at_end |= stream.eof or (at == content.size and not stream.unconsumed_tail)
    return Content(io.BytesIO(unpacked), len(unpacked) if is_at_end else _UNKNOWN_SIZE, len(unpacked))


def is_tar(content: Content) -> bool:
    """Whether the file begins with the header of a tar, whose checksum is right."""
    try:
        tarfile.TarInfo.frombuf(content.head[:_TAR_HEADER], "utf-8", "surrogateescape")
    except (tarfile.TarError, ValueError):
        return False
    return True

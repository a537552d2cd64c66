"""Whether a file has code, by its name and its bytes. Pure.

Code runs in the program that loads the file: a pickle calls the objects it names, a script is run. A name
that promises code counts whatever the bytes are, and bytes of code count whatever the name is. All other
files must be of a format that holds data alone; a file of no known format counts as code. The files in which
an ONNX model keeps tensors have no format: a model has to name such a file, and it must not begin like
a file that a program unpacks or runs.
"""

import re
from collections.abc import Callable, Collection
from typing import NamedTuple

from serving.images.file_formats import archives, compressed, data_formats
from serving.images.file_formats.archives import UnreadableArchive
from serving.images.file_formats.content import Content, Unexamined
from serving.images.file_formats.pickles import is_pickle


class FileFormat(NamedTuple):
    """The format of a file."""

    name: str
    """For people: `Pickle`."""
    has_code: bool


PICKLE = FileFormat("Pickle", has_code=True)
PROGRAM = FileFormat("Program", has_code=True)
PYTHON = FileFormat("Python", has_code=True)
ARCHIVE = FileFormat("Archive", has_code=True)
"""A zip archive that is neither NumPy's nor skops' and has no member of another format with code; a zip
archive that cannot be examined; a tar."""
COMPRESSED = FileFormat("Compressed", has_code=True)
"""A stream that joblib unpacks and loads; its data are not examined."""
UNRECOGNIZED = FileFormat("Unrecognized", has_code=True)
SAFETENSORS = FileFormat("Safetensors", has_code=False)
ONNX = FileFormat("ONNX", has_code=False)
SKOPS = FileFormat("Skops", has_code=False)
NUMPY = FileFormat("NumPy", has_code=False)
SENTENCE_PIECE = FileFormat("SentencePiece", has_code=False)
TEXT = FileFormat("Text", has_code=False)

_PYTORCH = FileFormat("PyTorch", has_code=True)
_KERAS = FileFormat("Keras", has_code=True)
_SUFFIXES: dict[str, FileFormat] = {
    **dict.fromkeys(("pkl", "pickle", "pck", "pcl", "dill", "cloudpickle", "joblib", "jbl"), PICKLE),
    **dict.fromkeys(("pt", "pth", "pt2", "ptl", "torchscript", "ckpt", "mar"), _PYTORCH),
    **dict.fromkeys(("keras", "h5", "hdf5"), _KERAS),
    **dict.fromkeys(("pb", "pbtxt"), FileFormat("TensorFlow", has_code=True)),
    **dict.fromkeys(("engine", "plan", "trt"), FileFormat("TensorRT", has_code=True)),
    **dict.fromkeys(("rds", "rda", "rdata", "r"), FileFormat("R", has_code=True)),
    **dict.fromkeys(("py", "pyc", "pyo", "pyd", "pyw", "pyx", "ipynb", "whl", "egg"), PYTHON),
    **dict.fromkeys(("so", "dll", "dylib", "exe", "jar", "class", "wasm"), PROGRAM),
    **dict.fromkeys(
        ("sh", "bash", "bat", "cmd", "ps1", "js", "mjs", "lua", "rb", "pl", "jl", "php"), PROGRAM
    ),
}
"""Formats with code by the file's suffix, in lower case."""
_COMPRESSIONS = frozenset({"gz", "bz2", "xz", "lzma", "z", "lz4", "zst"})
_VERSIONED_LIBRARY = re.compile(r".*\.so(\.\d+)+")
_MAGIC: dict[bytes, FileFormat] = {
    b"\x7fELF": PROGRAM,
    b"\xcf\xfa\xed\xfe": PROGRAM,
    b"\xce\xfa\xed\xfe": PROGRAM,
    b"\xca\xfe\xba\xbe": PROGRAM,
    b"MZ\x90\x00": PROGRAM,
    b"\x00asm": PROGRAM,
    b"#!": PROGRAM,
}
"""First bytes of programs: ELF, Mach-O, a class of Java, PE, WebAssembly, a script."""
_HDF5 = b"\x89HDF\r\n\x1a\n"
_SKOPS_SCHEMA = "schema.json"
_SKOPS_RAW = ".bin"
"""Suffix of the members of a skops file that are bytes objects. skops returns these bytes as they are, so
they may have no known format."""
_BINARY_DATA: dict[str, tuple[FileFormat, Callable[[Content], bool]]] = {
    ".safetensors": (SAFETENSORS, data_formats.is_safetensors),
    ".onnx": (ONNX, data_formats.is_onnx),
    ".model": (SENTENCE_PIECE, data_formats.is_sentence_piece),
    ".spm": (SENTENCE_PIECE, data_formats.is_sentence_piece),
}
ONNX_TENSORS = (".onnx.data", ".onnx_data")
"""Suffixes of the tensors that an ONNX model keeps beside itself: raw bytes without a structure."""
_PYC_MAGIC = b"\r\n"
"""Bytes 2 and 3 of compiled Python; the bytes before them are its version (importlib.util.MAGIC_NUMBER)."""


def detect(path: str, content: Content, onnx_tensors: Collection[str] = ()) -> FileFormat:
    """Return the format of a file; ONNX models keep tensors in the files with the paths `onnx_tensors`."""
    if (code := _by_name(path) or _by_bytes(content)) is not None:
        return code
    if archives.is_zip(content):
        return _archive(path, content)
    if path in onnx_tensors and path.lower().endswith(ONNX_TENSORS):
        return _tensors(content)
    return _data(path, content)


def _by_name(path: str) -> FileFormat | None:
    """Return the format of code that the name promises; None if it promises none."""
    name = path.rpartition("/")[2].lower()
    if _VERSIONED_LIBRARY.fullmatch(name):
        return PROGRAM
    stem, _, suffix = name.rpartition(".")
    if suffix in _COMPRESSIONS:
        suffix = stem.rpartition(".")[2]
    return _SUFFIXES.get(suffix) if stem else None


def _by_bytes(content: Content) -> FileFormat | None:
    """Return the format of code that the bytes have; None if they have none."""
    for magic, file_format in _MAGIC.items():
        if content.head.startswith(magic):
            return file_format
    if _is_hdf5(content):
        return _KERAS
    is_numpy = content.head.startswith(data_formats.NUMPY_MAGIC)
    if is_pickle(content) or (is_numpy and data_formats.has_numpy_objects(content)):
        return PICKLE
    if compressed.is_compressed(content):
        return COMPRESSED
    if compressed.is_tar(content):
        return ARCHIVE
    return PYTHON if data_formats.is_text(content) and data_formats.has_python_tag(content) else None


def _is_hdf5(content: Content) -> bool:
    """Whether HDF5's signature is where its libraries look: at 0, 512, and each doubling of that."""
    places = [0, *(512 << doubling for doubling in range(content.examined.bit_length()))]
    return any(content.beginning(place, len(_HDF5)) == _HDF5 for place in places if place < content.examined)


def _tensors(content: Content) -> FileFormat:
    """Return the format of a file of raw tensors.

    A header of zlib or of compiled Python counts as code here. `_by_bytes` does not go by these two bytes
    alone, as text may begin with them; few tensors do.
    """
    if compressed.has_zlib_header(content):
        return COMPRESSED
    return PYTHON if content.head[2:4] == _PYC_MAGIC else ONNX


def _data(path: str, content: Content) -> FileFormat:
    """Return the format of a file in which no code was detected: a data format, or UNRECOGNIZED."""
    name = path.lower()
    if content.head.startswith(data_formats.NUMPY_MAGIC):
        return NUMPY if data_formats.is_numpy(content) else UNRECOGNIZED
    for suffix, (file_format, is_valid) in _BINARY_DATA.items():
        if name.endswith(suffix) and is_valid(content):
            return file_format
    return TEXT if data_formats.is_text(content) else UNRECOGNIZED


def _archive(path: str, content: Content, *, is_nested: bool = False) -> FileFormat:
    """Return the format of a zip archive: that of its first member with code, else its own.

    An archive in a nested archive is not examined, and counts as code.
    """
    names: list[str] = []
    formats: set[FileFormat] = set()
    try:
        for member in archives.members(content):
            detected = _member(member.name, member.content, is_nested=is_nested)
            if detected.has_code and not (detected is UNRECOGNIZED and member.name.endswith(_SKOPS_RAW)):
                return ARCHIVE if detected is UNRECOGNIZED else detected
            names.append(member.name)
            formats.add(detected)
    except (UnreadableArchive, Unexamined):
        return ARCHIVE
    if formats == {NUMPY}:
        return NUMPY
    return SKOPS if path.lower().endswith(".skops") and _SKOPS_SCHEMA in names else ARCHIVE


def _member(name: str, content: Content, *, is_nested: bool) -> FileFormat:
    if not archives.is_zip(content):
        return detect(name, content)
    # The directory of a zip is at its end, so that other bytes may stand before it.
    if (code := _by_name(name) or _by_bytes(content)) is not None:
        return code
    return ARCHIVE if is_nested else _archive(name, content, is_nested=True)

"""Formats of files by name and bytes. Nothing is ever loaded: what a pickle would call leaves no trace."""

import bz2
import contextlib
import gzip
import importlib.util
import io
import lzma
import pickle
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.images.file_formats import archives, pickles
from serving.images.file_formats.content import HEAD, Content
from serving.images.file_formats.detection import detect
from tests.objects.models import model_files
from tests.objects.models.model_files import (
    npy,
    onnx,
    pickled,
    safetensors,
    sentence_piece,
    skops,
    torch,
    zipped,
)
from tests.rig.fuzzing import fuzzed

DATA = {
    "model.safetensors": ("Safetensors", safetensors()),
    "deep/model.onnx": ("ONNX", onnx()),
    "deep/model.onnx.data": ("ONNX", b"\x00\xff\x9c" * 9),
    "model.skops": ("Skops", skops()),
    "sparse.skops": ("Skops", skops(**{"2.npz": zipped({"data.npy": npy()}), "3.bin": b"\x00\xff"})),
    "weights.npy": ("NumPy", npy()),
    "weights.npz": ("NumPy", zipped({"a.npy": npy(), "b.npy": npy([1, 2])})),
    "tokenizer.model": ("SentencePiece", sentence_piece()),
    "slipway.json": ("Text", b'{"framework": "onnx"}'),
    "vocab.txt": ("Text", "cat\ndog\nRabbit\ndésert\n".encode()),
    "LICENSE": ("Text", b"(c) 2026 The authors\nall rights\ntR."),
    "empty": ("Text", b""),
}
CODE = {
    "model.joblib": ("Pickle", b"weights"),
    "MODEL.PKL": ("Pickle", b""),
    "model.pkl.gz": ("Pickle", gzip.compress(b"x")),
    "model.pt2": ("PyTorch", torch()),
    "weights.pt": ("PyTorch", safetensors()),
    "model.keras": ("Keras", zipped({"config.json": b"{}"})),
    "saved_model.pb": ("TensorFlow", b"\x08\x01"),
    "modeling.py": ("Python", b""),
    "libops.so.1.2": ("Program", b""),
    "pytorch_model.bin": ("Pickle", torch()),
    "weights.bin": ("Unrecognized", b"\x00\xff\x9c" * 9),
    "labels.npy": ("Pickle", npy(np.array([{"a": 1}], dtype=object))),
    "labels.npz": ("Pickle", zipped({"a.npy": npy(), "b.npy": npy(np.array([None], dtype=object))})),
    "bad.skops": ("Pickle", skops(**{"2.bin": pickled()})),
    "deep.skops": ("Pickle", skops(**{"2.npz": zipped({"a.npy": npy(np.array([None], dtype=object))})})),
    "deeper.skops": ("Archive", skops(**{"2.npz": zipped({"a.npz": zipped({"b.npy": npy()})})})),
    "stray.skops": ("Archive", skops(**{"2.raw": b"\x00\xff"})),
    "unschemed.skops": ("Archive", zipped({"notes.txt": b"text"})),
    "broken.skops": ("Archive", skops()[:-30]),
    "config.yaml": ("Python", b"a: !!python/object/apply:os.system [ls]\n"),
    "late.yaml": ("Python", b"# " + b"x" * HEAD + b"\na: !!python/object/apply:os.system [ls]\n"),
    "verbatim.yaml": ("Python", b"a: !<tag:yaml.org,2002:python/object/apply:os.system> [ls]\n"),
    "handle.yaml": ("Python", b"%TAG !e! tag:yaml.org,2002:\n--- !e!python/object/apply:os.system [ls]\n"),
    "tab.yaml": ("Python", b"%TAG\t!e! tag:yaml.org,2002:\n--- !e!python/object/apply:os.system [ls]\n"),
    "escaped.yaml": ("Python", b"a: !!%70ython/object/apply:os.system [ls]\n"),
    "run": ("Program", b"#!/bin/sh\n"),
    "notes": ("Unrecognized", b"x" * HEAD + b"\x00\xff\x9c"),
    "weights": ("Keras", b"x" * 2 * HEAD + b"\x89HDF\r\n\x1a\n" + bytes(9)),
    "model.onnx": ("Unrecognized", onnx()[:-1]),
}
"""Names with the format, and bytes that are no other format's."""


def format_of(path: str, data: bytes) -> tuple[str, bool]:
    detected = detect(path, Content(io.BytesIO(data), len(data)), {"deep/model.onnx.data"})
    return detected.name, detected.has_code


@pytest.mark.parametrize("path", DATA)
def test_a_format_that_holds_data_alone_has_no_code(path: str) -> None:
    name, data = DATA[path]
    assert format_of(path, data) == (name, False)


@pytest.mark.parametrize("path", CODE)
def test_code_is_recognised_by_name_or_by_bytes(path: str) -> None:
    name, data = CODE[path]
    assert format_of(path, data) == (name, True)


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("path", [*DATA, "weights.bin", "no-suffix"])
def test_a_pickle_under_any_name_is_a_pickle(path: str, protocol: int) -> None:
    assert format_of(path, pickled(protocol=protocol)) == ("Pickle", True)


@pytest.mark.parametrize("path", DATA)
@pytest.mark.parametrize(
    "data",
    [
        torch(),
        zipped({"notes.txt": b"text", "a/b.txt": pickled(protocol=0)}),
        b"text" + torch(),
        b"\x7fELF\x02\x01",
    ],
    ids=["torch", "pickle as text", "behind other bytes", "ELF"],
)
def test_an_archive_with_a_pickle_and_a_program_have_code_under_any_name(path: str, data: bytes) -> None:
    assert format_of(path, data)[1]


def tar(data: bytes) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        member = tarfile.TarInfo("pickle")
        member.size = len(data)
        archive.addfile(member, io.BytesIO(data))
    return out.getvalue()


PACKED = {
    "zlib": zlib.compress(pickled()),
    "gzip": gzip.compress(pickled()),
    "bzip2": bz2.compress(pickled()),
    "xz": lzma.compress(pickled()),
    "lzma": lzma.compress(pickled(), format=lzma.FORMAT_ALONE),
    "tar": tar(pickled()),
    "zlib of a long pickle": zlib.compress(pickled([bytes(3 * HEAD), model_files.Calls()])),
    "zlib that is damaged behind the call": zlib.compress(pickled() + bytes(range(256)) * 8)[:-40] + bytes(9),
}


@pytest.mark.parametrize("packed", PACKED)
@pytest.mark.parametrize("path", DATA)
def test_a_packed_pickle_has_code_under_any_name(path: str, packed: str) -> None:
    assert format_of(path, PACKED[packed]) == ("Archive" if packed == "tar" else "Compressed", True)


def test_a_packed_pickle_of_text_alone_is_compressed() -> None:
    """As text that begins like zlib is none."""
    assert format_of("notes.txt", b"ZF0x1c                x^") == ("Compressed", True)
    for size in (b"2f", b"+0x2f", b"0X2f", b" 0x2f", b"2_f"):
        assert format_of("notes.txt", b"ZF" + size.ljust(19) + b"x^") == ("Compressed", True)
    for text in (b"x^", b"x^2 + y^2\n", b"x^2\n", b"x^" + b"words " * 9):
        assert format_of("notes.txt", text) == ("Text", False), text


def test_gzip_that_is_a_header_of_safetensors_too_is_compressed() -> None:
    length = int.from_bytes(b"\x1f\x8b\x08\0\0\0\0\0", "little")
    header = safetensors(padding=length)[8 : 8 + length].strip()
    assert format_of(
        "model.safetensors", length.to_bytes(8, "little") + header.ljust(length) + b"\1\2\3\4"
    ) == (
        "Compressed",
        True,
    )


def test_tensors_of_an_onnx_model_hold_data_alone_only_where_a_model_names_their_file() -> None:
    name, tensors = "deep/model.onnx.data", b"\x00\xff\x9c" * 9
    assert detect(name, Content(io.BytesIO(tensors), len(tensors)), {name}).name == "ONNX"
    assert detect(name, Content(io.BytesIO(tensors), len(tensors))).name == "Unrecognized"
    assert detect("weights.bin", Content(io.BytesIO(tensors), len(tensors)), {"weights.bin"}).has_code


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("Python", importlib.util.MAGIC_NUMBER + bytes(12) + b"\xe3" + bytes(40)),
        ("Compressed", zlib.compress(b"\x00\xff" * 40)),
    ],
)
def test_tensors_of_an_onnx_model_that_begin_as_code_are_code(name: str, data: bytes) -> None:
    assert format_of("deep/model.onnx.data", data) == (name, True)


def test_a_pickle_with_rubbish_behind_its_call_is_a_pickle() -> None:
    assert format_of("notes.txt", pickled(protocol=0)[:-1] + b"\x00rubbish") == ("Pickle", True)


@given(st.binary(max_size=300), st.sampled_from(sorted(DATA)))
def test_any_bytes_have_a_format(data: bytes, path: str) -> None:
    format_of(path, data)


@given(st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), max_size=200))
def test_text_of_one_line_is_never_a_pickle(text: str) -> None:
    assert format_of("notes.txt", text.encode())[0] in ("Text", "Program", "Python")


_PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9) | st.binary(max_size=9),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(_PLAIN, st.integers(2, 5))
def test_a_pickle_of_data_alone_is_a_pickle_since_protocol_2(value: object, protocol: int) -> None:
    assert format_of("model.safetensors", pickled([value], protocol)) == ("Pickle", True)


@given(_PLAIN, st.integers(0, 5))
def test_a_call_behind_any_data_is_a_pickle(value: object, protocol: int) -> None:
    assert format_of("labels.txt", pickled([value, model_files.Calls()], protocol)) == ("Pickle", True)


@given(st.dictionaries(st.text("abc", min_size=1), st.binary(max_size=20), max_size=4), st.integers(0, 700))
def test_safetensors_of_any_header_length_hold_data_alone(tensors: dict[str, bytes], padding: int) -> None:
    assert format_of("model.safetensors", safetensors(tensors, padding)) == ("Safetensors", False)


@given(st.integers(1, 200))
def test_safetensors_with_bytes_that_no_tensor_names_are_not_recognised(extra: int) -> None:
    assert format_of("model.safetensors", safetensors() + b"\x00" * extra) == ("Unrecognized", True)


def test_a_member_is_examined_up_to_a_bound_and_counts_as_a_pickle_beyond_it() -> None:
    late = b"\x80\x04B" + (2 * HEAD).to_bytes(4, "little") + bytes(2 * HEAD) + pickled()[2:]
    packed = zipped({"schema.json": b"{}", "1.bin": late}, zipfile.ZIP_DEFLATED)
    assert format_of("model.skops", packed) == ("Pickle", True)


def test_an_archive_with_too_many_members_is_not_looked_into(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "MOST_MEMBERS", 2)
    members = {"schema.json": b"{}", "1.npy": npy(), "2.npy": npy()}
    assert format_of("model.skops", zipped(members)) == ("Archive", True)


def test_an_archive_with_a_damaged_member_in_zstandard_is_not_looked_into() -> None:
    """Since Python 3.14, zipfile unpacks such a member; earlier ones do not know the method."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("a.npy", npy())
        archive.infolist()[0].compress_type = 93  # as the directory has it, by which zipfile reads
    assert format_of("weights.npz", out.getvalue()) == ("Archive", True)


def test_archives_in_an_archive_are_looked_into_up_to_a_bound_of_them_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    inner = zipped({"data.npy": npy()})
    packed = skops(**{f"{number}.npz": inner for number in range(10)})
    assert format_of("model.skops", packed) == ("Skops", False)
    monkeypatch.setattr(archives, "ALL_NESTED", 9 * len(inner))
    assert format_of("model.skops", packed) == ("Archive", True)


def test_a_directory_of_entries_is_read_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    packed = skops()
    monkeypatch.setattr(archives, "NESTED", 50)
    assert format_of("model.skops", packed) == ("Archive", True)


def test_a_pickle_that_goes_on_for_long_without_a_call_is_a_pickle() -> None:
    program = b"N0" * pickles.MAX_OPCODES + pickled(protocol=0)
    assert format_of("labels.txt", program) == ("Pickle", True)


def test_text_that_consists_of_opcodes_is_no_pickle_when_an_unpickler_would_refuse_it() -> None:
    for text in ("N)R.", "cat\ndog\nb.", "(i) first\nsecond\n", "class\ndef\nR", "Py\n.", "I1\n.", "hello."):
        assert format_of("labels.txt", text.encode()) == ("Text", False), text


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_a_call_in_a_later_pickle_of_a_file_is_a_pickle(protocol: int) -> None:
    """As in PyTorch's format before version 1.6, whose first pickles are numbers."""
    data = pickled(119547037146038801333356, 0) + pickled(1001, 0) + pickled(protocol=protocol)
    assert format_of("pytorch_model.bin", data) == ("Pickle", True)


@pytest.mark.parametrize(
    "program",
    [
        b"cbuiltins\n__dict__\nS'getattr'\nNscx\nnot a name\n",
        b"cbuiltins\n__dict__\n(S'getattr'\nNu ",
        b"csys\npath\nS'.'\na ",
        b"csys\npath\n(S'.'\ne ",
        b"csys\npath\n(S'.'\n\x90 ",
    ],
    ids=["SETITEM", "SETITEMS", "APPEND", "APPENDS", "ADDITEMS"],
)
def test_a_change_of_an_import_is_a_pickle_also_if_the_program_fails_behind_it(program: bytes) -> None:
    assert format_of("labels.txt", program) == ("Pickle", True)


@pytest.mark.parametrize("name", [b"call.a b", b"call.", b"call.a\tb"])
def test_an_import_by_a_name_with_spaces_is_followed_to_the_effect_behind_it(name: bytes) -> None:
    program = b"K\xc2\x80\x04cunittest.mock\n" + name + b"\n0" + pickled(protocol=0)
    assert format_of("deep/model.onnx.data", program) == ("Pickle", True)


def test_a_member_that_is_a_pickle_with_an_archive_behind_it_is_a_pickle() -> None:
    objects = npy(np.array([None], dtype=object)) + zipped({"a.npy": npy()})
    assert format_of("weights.npz", zipped({"a.npy": objects})) == ("Pickle", True)


def test_columns_by_name_and_numbers_without_zeros_are_text() -> None:
    assert format_of("table.csv", b"const_p1,const_p2\n.7376958,.2623042\n.5,.5\n") == ("Text", False)
    assert format_of("notes.txt", b"contents\nA list of names\n.gitignore\n") == ("Text", False)


class Recorder:
    """An import that records whether an unpickler calls or changes it."""

    has_effect = False

    def _record(self, *_: object) -> None:
        Recorder.has_effect = True

    __call__ = __setitem__ = __setstate__ = append = extend = add = update = _record


class RecordingUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> object:
        return Recorder()


OPCODES = b"N ] } ) ( s u a e \x90 b R o 0 2 t l d 1 \x8f \x91 \x94 \x85 \x86 \x87 . \x93".split()
ARGUMENTS = [b"K\x01", b"q\x00", b"h\x00", b"cx\ny\n", b"S'x'\n", b"Vx\n", b"\x8c\x01x", b"ix\ny\n"]


@fuzzed(2_000)
@given(st.lists(st.sampled_from(OPCODES + ARGUMENTS), max_size=14).map(b"".join))
def test_a_program_that_has_an_effect_in_an_unpickler_is_a_pickle(program: bytes) -> None:
    Recorder.has_effect = False
    with contextlib.suppress(Exception):
        RecordingUnpickler(io.BytesIO(b"cx\ny\n" + program)).load()
    assert not Recorder.has_effect or format_of("labels.txt", b"cx\ny\n" + program) == ("Pickle", True)


def test_a_call_by_a_long_name_is_a_pickle() -> None:
    name = b"path.os." * 1000 + b"system"
    data = b"S'" + b"a" * HEAD + b"'\n0\x80\x04cos\n" + name + b"\n(S'id'\ntR."
    assert format_of("notes.txt", data) == ("Pickle", True)


def test_a_name_that_goes_on_for_long_counts_as_examined_no_further() -> None:
    data = b"c" + b"x" * 2 * pickles.LONGEST_LINE
    assert format_of("notes.txt", data) == ("Pickle", True)
    assert format_of("notes.txt", data[:1000] + b" " + data) == ("Text", False)


@pytest.mark.parametrize(
    "elements",
    [
        "'|O'",
        "'object'",
        r"'\x7cO'",
        "'i4,O'",
        "'(2,)O'",
        "[('a', '<i4'), ('b', [('c', '|O')])]",
        "('O', (2,))",
        "()",
        "7",
    ],
)
def test_a_numpy_file_of_objects_is_a_pickle_for_every_form_of_its_header(elements: str) -> None:
    text = f"{{'descr': {elements}, 'fortran_order': False, 'shape': (1,)}}\n".encode()
    data = b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + pickled()
    assert format_of("weights.npy", data) == ("Pickle", True)


@pytest.mark.parametrize(
    "elements",
    [
        "?",
        "<f2",
        ">i8",
        "<c16",
        "S3",
        "U10",
        "V4",
        "M8[ns]",
        "m8[25s]",
        [("a", "<f8", (2,)), ("b", [("c", "U1")])],
    ],
)
def test_a_numpy_file_of_numbers_texts_and_records_holds_data_alone(elements: object) -> None:
    assert format_of("weights.npy", npy(np.zeros(2, dtype=elements))) == ("NumPy", False)


@pytest.mark.parametrize(
    "behind",
    [npy(np.array([None], dtype=object)), pickled(), b"\0", npy()],
    ids=["objects", "pickle", "a byte", "npy"],
)
def test_a_numpy_file_with_bytes_behind_its_array_is_not_recognised(behind: bytes) -> None:
    """A program may load one array after another from a file."""
    assert format_of("weights.npy", npy() + behind) == ("Unrecognized", True)
    assert format_of("weights.npz", zipped({"a.npy": npy() + behind}))[1]


@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3, 4)])
@pytest.mark.parametrize(
    "elements",
    [
        "?",
        "<f4",
        "<c16",
        "S3",
        "U10",
        "V4",
        "M8[ns]",
        [("a", "<f8", (2,)), ("b", [("c", "U1"), ("d", "i1", 3)])],
    ],
)
def test_a_numpy_file_has_the_size_of_its_array(elements: object, shape: tuple[int, ...]) -> None:
    data = npy(np.zeros(shape, dtype=elements))
    assert format_of("weights.npy", data) == ("NumPy", False)
    assert format_of("weights.npy", data + b"\0") == ("Unrecognized", True)


def test_a_numpy_file_of_aligned_records_holds_data_alone() -> None:
    aligned = np.dtype([("a", "i1"), ("b", "f8")], align=True)
    assert format_of("weights.npy", npy(np.zeros(3, dtype=aligned))) == ("NumPy", False)


@pytest.mark.parametrize("shape", ["(-1,)", "(1.0,)", "'a'", "(True,)", "None"])
def test_a_numpy_file_without_a_shape_counts_as_a_pickle(shape: str) -> None:
    text = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}}}\n".encode()
    data = b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + bytes(8)
    assert format_of("weights.npy", data) == ("Pickle", True)


END = struct.Struct("<4s4H2IH")


def with_two_directories(first: dict[str, bytes], second: dict[str, bytes]) -> bytes:
    """Return an archive with `first` for readers that go to the offset of the end, and `second` for zipfile.

    Both directories must have one size.
    """
    head, tail = zipped(first), zipped(second)
    *_, size, offset, _ = END.unpack(head[-END.size :])
    *_, other_size, other_offset, _ = END.unpack(tail[-END.size :])
    assert size == other_size
    before = head[: offset + size]
    directory = bytearray(tail[other_offset : other_offset + size])
    at = 0
    while at < size:
        names = sum(struct.unpack_from("<3H", directory, at + 28))
        (header,) = struct.unpack_from("<I", directory, at + 42)
        # zipfile adds to each offset how far the directory it takes is from where the end says.
        struct.pack_into("<I", directory, at + 42, header + offset - other_offset)
        at += 46 + names
    return before + tail[:other_offset] + bytes(directory) + head[-END.size :]


def test_an_archive_on_whose_members_readers_disagree_is_not_looked_into() -> None:
    packed = with_two_directories({"archive/data.pkl": pickled() + bytes(200)}, {"archive/data.npy": npy()})
    with zipfile.ZipFile(io.BytesIO(packed)) as archive:
        assert archive.read("archive/data.npy") == npy(), "zipfile sees no pickle"
    assert format_of("weights.npz", packed) == ("Archive", True)


@pytest.mark.parametrize(
    "change",
    [
        lambda data: b"prepended" + data,
        lambda data: data + b"appended",
        lambda data: data[:-2] + b"\x04\x00note",
        lambda data: data[: -END.size] + END.pack(*END.unpack(data[-END.size :])[:6], 0xFFFFFFFF, 0),
    ],
    ids=["prepended", "appended", "comment", "zip64-without-its-end"],
)
def test_an_archive_with_other_bytes_than_its_own_is_not_looked_into(
    change: Callable[[bytes], bytes],
) -> None:
    packed = zipped({"a.npy": npy()})
    assert format_of("weights.npz", packed) == ("NumPy", False)
    assert format_of("weights.npz", change(packed)) == ("Archive", True)


def zip64(data: bytes, **changed: int) -> bytes:
    """Return the archive with the end of zip64, as PyTorch's writer adds it to small ones too."""
    *_, entries, size, offset, _ = END.unpack(data[-END.size :])
    numbers = {"rest": 44, "entries": entries, "size": size, "offset": offset, "at": len(data) - END.size}
    numbers |= changed
    end64 = struct.pack(
        "<4sQ2H2I4Q",
        *(b"PK\x06\x06", numbers["rest"], 45, 45, 0, 0),
        *(numbers["entries"], numbers["entries"], numbers["size"], numbers["offset"]),
    )
    locator = struct.pack("<4sIQI", b"PK\x06\x07", 0, numbers["at"], 1)
    return data[: -END.size] + end64 + locator + data[-END.size :]


def test_an_archive_with_a_zip64_end_is_looked_into_where_both_ends_agree() -> None:
    packed = zipped({"a.npy": npy()})
    assert format_of("weights.npz", zip64(packed)) == ("NumPy", False)
    for changed in ({"rest": 45}, {"entries": 2}, {"size": 7}, {"offset": 0}, {"at": 3}):
        assert format_of("weights.npz", zip64(packed, **changed)) == ("Archive", True)

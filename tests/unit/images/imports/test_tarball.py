"""Tars that we built are recognised by their frame; any other bytes are read or refused."""

import io
import tarfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving import errors
from serving.images.documents import layers, oci
from serving.images.documents.layers import LayerEntry
from serving.images.imports import tarball
from tests.objects.models.model_images import layer_tar

CONTENTS = {"a/empty": b"", "a/small": b"x", "big": bytes(range(256)) * 20, "désert/é": b"y" * 512}
LAYER = layers.plan(LayerEntry(path, len(data)) for path, data in CONTENTS.items())[0]
TAR = layer_tar(LAYER, CONTENTS)


def read(data: bytes, chunk_size: int = 1000) -> tuple[dict[str, bytes], tarball.TarReader]:
    chunks = (data[i : i + chunk_size] for i in range(0, len(data), chunk_size))
    tar = tarball.TarReader(tarball.decompressed(tarball.LayerStream(chunks), ""))
    return {member.path: b"".join(tar.data(member.size)) for member in tar.members()}, tar


@given(st.integers(1, 3000))
def test_own_tar_is_recognised_by_its_frame_in_chunks_of_any_size(chunk_size: int) -> None:
    contents, tar = read(TAR, chunk_size)
    assert contents == CONTENTS
    assert tar.diff_id == oci.digest_of(TAR)
    assert tar.frame == tarball.frame(LAYER)


@given(st.integers(0, len(TAR) - 1), st.integers(1, 255))
def test_changed_byte_changes_contents_or_frame_or_is_refused(at: int, flip: int) -> None:
    data = bytearray(TAR)
    data[at] ^= flip
    try:
        contents, tar = read(bytes(data))
    except errors.Permanent as error:
        assert error.reason == "InvalidImage"  # noqa: PT017 both outcomes are right
    else:
        assert contents != CONTENTS or tar.frame != tarball.frame(LAYER)


@given(st.binary(max_size=3000), st.integers(0, len(TAR)))
def test_any_bytes_are_read_or_refused(tail: bytes, keep: int) -> None:
    try:
        read(TAR[:keep] + tail)
    except errors.Permanent as error:
        assert error.reason == "InvalidImage"  # noqa: PT017 both outcomes are right


def test_global_headers_are_refused_when_they_have_more_records_than_a_reader_may_keep() -> None:
    def layer(records: int) -> bytes:
        # One record before each member: the headers of one member have a limit of bytes already.
        folder = tarfile.TarInfo("models")
        folder.type = tarfile.DIRTYPE
        parts = [
            tarfile.TarInfo.create_pax_global_header({f"k{number}": "v"}) + folder.tobuf()
            for number in range(records)
        ]
        return b"".join(parts) + layers.TRAILER

    assert read(layer(64))[0] == {}
    with pytest.raises(errors.Permanent, match="more than 64 records in global pax headers"):
        read(layer(65))


@pytest.mark.parametrize("compression", ["gzip", "zstd"])
@given(data=st.binary(max_size=500))
def test_any_bytes_are_decompressed_or_refused(compression: str, data: bytes) -> None:
    tar = tarball.TarReader(tarball.decompressed(tarball.LayerStream([data]), compression))
    with pytest.raises(errors.Permanent) as caught:
        list(tar.members())
    assert caught.value.reason == "InvalidImage"


@pytest.mark.parametrize(("most", "is_read"), [(len(CONTENTS), True), (len(CONTENTS) - 1, False)])
def test_layer_is_read_when_it_has_at_most_the_allowed_members(
    most: int, monkeypatch: pytest.MonkeyPatch, *, is_read: bool
) -> None:
    monkeypatch.setattr(tarball, "_MAX_MEMBERS", most)
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for path, data in CONTENTS.items():
            info = tarfile.TarInfo(f"models/{path}")
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    if is_read:
        assert read(archive.getvalue())[0] == CONTENTS
        return
    with pytest.raises(errors.Permanent, match=f"more than {most} members"):
        read(archive.getvalue())


def test_layer_is_refused_when_a_path_is_longer_than_a_system_call_takes() -> None:
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        tar.addfile(tarfile.TarInfo("/".join(["models", *["d" * 250] * 20, "weights"])))
    with pytest.raises(errors.Permanent, match="at most 3000 bytes") as caught:
        read(archive.getvalue())
    assert caught.value.reason == "InvalidImage"


def test_layer_stream_counts_hashes_and_forwards_read_and_drained_bytes() -> None:
    forwarded: list[bytes] = []
    source = tarball.LayerStream([b"abc", b"", b"defg"], forwarded.append)
    assert source.read(2) == b"ab"
    source.drain()
    assert (b"".join(forwarded), source.size) == (b"abcdefg", 7)
    assert source.digest == oci.digest_of(b"abcdefg")


class CountingStream(io.BytesIO):
    """Bytes that record the largest number asked for at once; -1 is all of them."""

    sizes: tuple[int, ...] = ()

    def read(self, size: int | None = -1, /) -> bytes:
        self.sizes += (-1 if size is None else size,)
        return super().read(size)


def header(name: str, size: int, kind: bytes) -> bytes:
    """Return a header whose size is a binary number, which may be negative or huge."""
    raw = bytearray(tarfile.TarInfo(name).tobuf(tarfile.GNU_FORMAT))
    raw[124:136] = size.to_bytes(12, "big", signed=True) if size < 0 else b"\x80" + size.to_bytes(11, "big")
    raw[156:157] = kind
    raw[148:156] = b" " * 8
    raw[148:156] = b"%06o\0 " % sum(raw)
    return bytes(raw)


@pytest.mark.parametrize(
    "headers",
    [
        [header("models/a", -1, tarfile.REGTYPE)],
        [header("models/a", -(2**40), tarfile.REGTYPE)],
        [header("x", -(2**40), tarfile.XHDTYPE), header("y", 2**30, tarfile.XHDTYPE)],
        [header("x", -(2**40), tarfile.GNUTYPE_LONGNAME), header("y", 2**30, tarfile.GNUTYPE_LONGNAME)],
    ],
)
def test_negative_size_is_refused_before_more_than_a_chunk_is_read(headers: list[bytes]) -> None:
    stream = CountingStream(b"".join(headers) + bytes(3 * tarball.CHUNK))
    tar = tarball.TarReader(stream)
    with pytest.raises(errors.Permanent) as caught:
        _ = [list(tar.data(member.size)) for member in tar.members()]
    assert caught.value.reason == "InvalidImage"
    assert min(stream.sizes) >= 0
    assert max(stream.sizes) <= tarball.CHUNK


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME])
def test_layer_is_refused_when_a_member_has_hundreds_of_extended_headers(kind: bytes) -> None:
    """`tarfile` reads each of them by recursion."""
    with pytest.raises(errors.Permanent, match="too many extended headers") as caught:
        read(header("x", 0, kind) * 600 + TAR)
    assert caught.value.reason == "InvalidImage"

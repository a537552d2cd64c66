"""Reading tars: ours are known by their frame, and no bytes of others do anything but be read or be refused."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving import errors
from serving.images.documents import layers, oci
from serving.images.documents.layers import Entry
from serving.images.imports import tarball
from tests.objects.model_images import layer_tar

CONTENTS = {"a/empty": b"", "a/small": b"x", "big": bytes(range(256)) * 20, "désert/é": b"y" * 512}
LAYER = layers.plan(Entry(path, len(data)) for path, data in CONTENTS.items())[0]
TAR = layer_tar(LAYER, CONTENTS)


def read(data: bytes, piece: int = 1000) -> tuple[dict[str, bytes], tarball.TarReader]:
    pieces = (data[i : i + piece] for i in range(0, len(data), piece))
    tar = tarball.TarReader(tarball.decompressed(tarball.LayerStream(pieces), ""))
    return {member.path: b"".join(tar.data(member.size)) for member in tar.members()}, tar


@settings(deadline=None)  # in single bytes it takes a busy machine long
@given(st.integers(1, 3000))
def test_our_tar_is_read_and_known_by_its_frame_however_it_is_cut(piece: int) -> None:
    found, tar = read(TAR, piece)
    assert found == CONTENTS
    assert tar.diff_id == oci.digest_of(TAR)
    assert tar.frame == tarball.frame(LAYER)


@given(st.integers(0, len(TAR) - 1), st.integers(1, 255))
def test_one_other_byte_gives_other_contents_or_another_frame_or_is_refused(at: int, flip: int) -> None:
    data = bytearray(TAR)
    data[at] ^= flip
    try:
        found, tar = read(bytes(data))
    except errors.Permanent as error:
        assert error.reason == "InvalidImage"  # noqa: PT017 both outcomes are right
    else:
        assert found != CONTENTS or tar.frame != tarball.frame(LAYER)


@given(st.binary(max_size=3000), st.integers(0, len(TAR)))
def test_any_bytes_are_read_or_refused(tail: bytes, keep: int) -> None:
    try:
        read(TAR[:keep] + tail)
    except errors.Permanent as error:
        assert error.reason == "InvalidImage"  # noqa: PT017 both outcomes are right


@pytest.mark.parametrize("compression", ["gzip", "zstd"])
@given(data=st.binary(max_size=500))
def test_any_bytes_are_decompressed_or_refused(compression: str, data: bytes) -> None:
    tar = tarball.TarReader(tarball.decompressed(tarball.LayerStream([data]), compression))
    with pytest.raises(errors.Permanent) as caught:
        list(tar.members())
    assert caught.value.reason == "InvalidImage"


def test_a_source_counts_hashes_and_passes_on_what_is_read_and_what_is_drained() -> None:
    kept: list[bytes] = []
    source = tarball.LayerStream([b"abc", b"", b"defg"], kept.append)
    assert source.read(2) == b"ab"
    source.drain()
    assert (b"".join(kept), source.size) == (b"abcdefg", 7)
    assert source.digest == oci.digest_of(b"abcdefg")

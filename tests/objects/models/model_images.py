"""Trained files, model images, copies of images between stores, and images of other builders."""

import gzip
import io
import json
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import zstandard

from serving.images.building.model_image import Built, build_image
from serving.images.documents import image, layers, oci
from serving.images.store.model_store import ModelStore


def write_trained(path: Path, *, big: int = 2_500_000, seed: int = 1) -> Path:
    """Write a small file, a file in a directory, and a file large enough for a layer of its own."""
    (path / "vocabulary").mkdir(parents=True)
    (path / "weights.bin").write_bytes(bytes((seed * 31 + i * i) % 251 for i in range(997)) * (big // 997))
    (path / "vocabulary" / "désert.txt").write_text(f"sand {seed}")
    (path / "slipway.json").write_text(json.dumps({"framework": "sklearn", "metrics": {"accuracy": 0.9}}))
    return path


def built_in(store: ModelStore, path: Path, **options: Any) -> Built:
    """Capture the files of `path` in the store."""
    return build_image(path, store, repository="slipway.local/default/m", lineage={"uid": "1"}, **options)


def pieces(data: bytes, size: int = 100_000) -> Iterator[bytes]:
    """Return the bytes in chunks, as from a network."""
    yield from (data[i : i + size] for i in range(0, len(data), size))


def carry(source: ModelStore, target: ModelStore, digest: str, origin: str | None = None) -> None:
    """Copy an image and its referrers between stores, as a push and a pull do."""
    manifest = source.read_manifest(digest)
    with target.importing(manifest, origin=origin) as arriving:
        for layer in image.parse(manifest).layers:
            arriving.add_layer(layer.digest, source.read_blob(layer.digest))
        config = image.parse(manifest).config.digest
        arriving.add_blob(config, b"".join(source.read_blob(config)))
        for described, document in source.referrers(digest):
            for blob in image.referred(document) - image.parse(manifest).blobs:
                arriving.add_blob(blob, b"".join(source.read_blob(blob)))
            arriving.add_blob(described["digest"], document)


@dataclass(frozen=True)
class ForeignImage:
    """An image of another builder: its documents, and its layers as blobs."""

    manifest: bytes
    config: bytes
    blobs: dict[str, bytes]

    @property
    def digest(self) -> str:
        return oci.digest_of(self.manifest)

    def bring(self, store: ModelStore) -> None:
        with store.importing(self.manifest) as arriving:
            arriving.add_blob(oci.digest_of(self.config), self.config)
            for digest, data in self.blobs.items():
                arriving.add_layer(digest, pieces(data))


def member(
    name: str, data: bytes = b"", kind: bytes = tarfile.REGTYPE, link: str = ""
) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.size, info.type, info.linkname = len(data), kind, link
    return info, data


def tar_of(members: Iterable[tuple[tarfile.TarInfo, bytes]]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for info, data in members:
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


def layer_tar(layer: layers.LayerPlan, contents: Mapping[str, bytes]) -> bytes:
    """Return the tar of one of our layers; `contents` has the bytes of its files by path."""
    out = io.BytesIO()
    for header, entry in layers.entries(layer):
        out.write(header)
        if entry is not None:
            out.write(contents[entry.path] + layers.padding(entry.size))
    out.write(layers.TRAILER)
    return out.getvalue()


def foreign(*tars: bytes, compression: str = "") -> ForeignImage:
    """Return an image of these layers, without our annotations."""
    pack = {"": bytes, "gzip": gzip.compress, "zstd": zstandard.ZstdCompressor().compress}[compression]
    return _of_blobs([pack(tar) for tar in tars], [oci.digest_of(tar) for tar in tars], compression)


def gzip_bomb(mebibytes: int) -> ForeignImage:
    """Return an image whose layer of 1 KiB for each MiB unpacks to one file of zeros.

    Its gzip members repeat, as to compress all zeros takes seconds; the diff ID is false.
    """
    info, _ = member("models/zeros")
    info.size = mebibytes * 1024 * 1024
    blob = gzip.compress(info.tobuf(tarfile.PAX_FORMAT)) + gzip.compress(bytes(1024 * 1024)) * mebibytes
    return _of_blobs([blob], [oci.digest_of(b"")], "gzip")


def _of_blobs(packed: list[bytes], diff_ids: list[str], compression: str) -> ForeignImage:
    kind = f"{oci.LAYER_TYPE}+{compression}" if compression else oci.LAYER_TYPE
    config = oci.encode(
        {
            "architecture": "amd64",
            "os": "linux",
            "rootfs": {"type": "layers", "diff_ids": diff_ids},
        }
    )
    manifest = oci.encode(
        {
            "schemaVersion": 2,
            "mediaType": oci.MANIFEST_TYPE,
            "config": oci.descriptor(oci.CONFIG_TYPE, config),
            "layers": [oci.descriptor(kind, data) for data in packed],
        }
    )
    return ForeignImage(manifest, config, {oci.digest_of(data): data for data in packed})

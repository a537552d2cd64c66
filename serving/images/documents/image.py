"""Reads the manifests and configs of images, also of those that buildah, docker and others built. Pure.

All input comes from outside and is validated. `oci` writes these documents.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from serving import errors
from serving.images.documents import layers, oci

_DIGEST = re.compile(r"sha256:([0-9a-f]{64})")
_CONFIG_TYPES = (oci.CONFIG_TYPE, "application/vnd.docker.container.image.v1+json")
COMPRESSION: Mapping[str, str] = {
    oci.LAYER_TYPE: "",
    f"{oci.LAYER_TYPE}+gzip": "gzip",
    f"{oci.LAYER_TYPE}+zstd": "zstd",
    "application/vnd.docker.image.rootfs.diff.tar": "",
    "application/vnd.docker.image.rootfs.diff.tar.gzip": "gzip",
}
"""How a layer's bytes are compressed, by media type (OCI image-spec 1.1, layer.md; Docker image manifest
v2.2).
"""


@dataclass(frozen=True)
class Blob:
    """A blob by its descriptor; size in bytes."""

    digest: str
    size: int


@dataclass(frozen=True)
class Layer:
    """A layer by its descriptor; size of the blob, which may be compressed."""

    digest: str
    size: int
    compression: str
    """`gzip`, `zstd`, or empty."""
    files: tuple[oci.File, ...] | None
    """From the annotation `dev.slipway.files`; None without it, as in layers of other tools; () for the layer
    of the list of all files."""
    file_list: str = ""
    """From the annotation `dev.slipway.file-list`: digest of `files.json`, the list of all files, if the
    layer has the list; else empty."""

    @property
    def is_reproducible(self) -> bool:
        """Whether `layers.entries` reproduces the exact blob from the files, so that it need not be kept."""
        return self.files is not None and not self.compression and not self.file_list

    def plan(self) -> layers.LayerPlan:
        """Return the layer's files as a plan, from which `layers.entries` reproduces the tar headers."""
        return layers.LayerPlan(tuple(layers.LayerEntry(file.path, file.size) for file in self.files or ()))


@dataclass(frozen=True)
class Image:
    """An image manifest."""

    config: Blob
    layers: tuple[Layer, ...]

    @property
    def blobs(self) -> frozenset[str]:
        """Digests of all blobs of the image but its manifest."""
        return frozenset({self.config.digest, *(layer.digest for layer in self.layers)})

    @property
    def kept(self) -> frozenset[str]:
        """Digests of the blobs that must be kept, as the files do not reproduce them."""
        reproducible = {layer.digest for layer in self.layers if layer.is_reproducible}
        return self.blobs - reproducible


def hexadecimal(digest: str) -> str:
    """Return the 64 hexadecimal digits of a digest.

    Raises:
        errors.Permanent: `InvalidDigest`.
    """
    match = _DIGEST.fullmatch(digest)
    if match is None:
        raise errors.Permanent("InvalidDigest", f"{digest!r}: must be `sha256:` and 64 hexadecimal digits")
    return match.group(1)


def invalid(message: str) -> errors.Permanent:
    """Return the error for an image that is refused."""
    return errors.Permanent("InvalidImage", message)


def parse(manifest: bytes) -> Image:
    """Read an image manifest.

    Raises:
        errors.Permanent: `InvalidImage`; the message names the field, the rule and the value.
    """
    if len(manifest) > oci.MAX_MANIFEST:
        raise invalid(f"the manifest must have at most {oci.MAX_MANIFEST} bytes, got {len(manifest)}")
    document = _object(manifest, "the manifest")
    config = document.get("config")
    if not isinstance(config, dict) or config.get("mediaType") not in _CONFIG_TYPES:
        media_type = config.get("mediaType") if isinstance(config, dict) else document.get("mediaType")
        raise invalid(
            f"config.mediaType: must be one of {', '.join(_CONFIG_TYPES)} "
            f"(an image, no index and no artifact), got {media_type!r}"
        )
    descriptors = document.get("layers")
    if not isinstance(descriptors, list) or not descriptors:
        raise invalid(f"layers: must be a list with a layer, got {str(descriptors)[:60]}")
    parsed = tuple(_layer(f"layers[{i}]", item) for i, item in enumerate(descriptors))
    check_paths([file.path for layer in parsed for file in layer.files or ()])
    return Image(_blob("config", config), parsed)


def diff_ids(config: bytes, count: int) -> tuple[str, ...]:
    """Return the digests of the uncompressed layers that an image config lists, which must be `count`.

    Raises:
        errors.Permanent: `InvalidImage`.
    """
    rootfs = _object(config, "the config").get("rootfs")
    digests = rootfs.get("diff_ids") if isinstance(rootfs, dict) else None
    if not isinstance(digests, list) or len(digests) != count:
        raise invalid(f"config: rootfs.diff_ids must list {count} layers, got {str(digests)[:60]}")
    return tuple(_digest("config: rootfs.diff_ids", item) for item in digests)


def subject(document: bytes) -> str | None:
    """Return the digest in the `subject` of a manifest, such as the image that a signature refers to.

    None if the bytes are not a manifest, or one without a valid subject.
    """
    if len(document) > oci.MAX_MANIFEST or not document.startswith(b"{"):
        return None
    try:
        digest = json.loads(document)["subject"]["digest"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return digest if isinstance(digest, str) and _DIGEST.fullmatch(digest) else None


def referred(document: bytes) -> frozenset[str]:
    """Return the digests of config and layers of a manifest for which `subject` is not None; they are not
    validated.
    """
    manifest = json.loads(document)
    blobs = manifest.get("layers")
    descriptors = [manifest.get("config"), *(blobs if isinstance(blobs, list) else [])]
    return frozenset(str(item.get("digest")) for item in descriptors if isinstance(item, dict))


def check_paths(paths: Sequence[str]) -> None:
    """Refuse paths that cannot be in one tree, as `layers.check_paths`, with the error for images.

    Raises:
        errors.Permanent: `InvalidImage`.
    """
    try:
        layers.check_paths(paths)
    except errors.Permanent as error:
        raise invalid(f"{layers.ROOT}: {error}") from error


def _object(data: bytes, title: str) -> dict[str, Any]:
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise invalid(f"{title}: must be JSON ({error}), got {data[:60]!r}") from error
    if not isinstance(document, dict):
        raise invalid(f"{title}: must be an object, got {data[:60]!r}")
    return document


def _layer(where: str, item: Any) -> Layer:
    blob = _blob(where, item)
    media_type = item.get("mediaType")
    if not isinstance(media_type, str) or media_type not in COMPRESSION:
        raise invalid(f"{where}.mediaType: must be one of {', '.join(COMPRESSION)}, got {media_type!r}")
    annotations = item.get("annotations") or {}
    if not isinstance(annotations, dict):
        raise invalid(f"{where}.annotations: must be an object, got {str(annotations)[:60]}")
    if oci.FILE_LIST in annotations:
        listing = _digest(f"{where}.annotations[{oci.FILE_LIST}]", annotations[oci.FILE_LIST])
        return Layer(blob.digest, blob.size, COMPRESSION[media_type], (), listing)
    listed = annotations.get(oci.FILES)
    files = None if listed is None else _files(f"{where}.annotations[{oci.FILES}]", listed)
    return Layer(blob.digest, blob.size, COMPRESSION[media_type], files)


def _blob(where: str, item: Any) -> Blob:
    if not isinstance(item, dict):
        raise invalid(f"{where}: must be a descriptor, got {str(item)[:60]}")
    return Blob(_digest(f"{where}.digest", item.get("digest")), _size(f"{where}.size", item.get("size")))


def _files(where: str, text: Any) -> tuple[oci.File, ...]:
    try:
        return tuple(
            oci.File(str(f["path"]), _digest(where, f["digest"]), _size(where, f["size"]))
            for f in json.loads(text)
        )
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise invalid(f"{where}: must be a JSON list of path, digest and size ({error!r})") from error


def _digest(where: str, value: Any) -> str:
    if not isinstance(value, str) or not _DIGEST.fullmatch(value):
        raise invalid(f"{where}: must be `sha256:` and 64 hexadecimal digits, got {str(value)[:80]!r}")
    return value


def _size(where: str, value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise invalid(f"{where}: must be a number of bytes, got {str(value)[:60]!r}")
    return value

"""Writes the JSON documents of an image: config, image manifest, ModelPack manifest, lineage. Pure.

The files alone determine the image manifest, so the same files give the same digest. The origin of the files
differs per Job: lineage is a document of its own that refers to the image (`subject`). The ModelPack manifest
has the same layers, for tools of that format. Media types and annotations: OCI image-spec 1.1;
github.com/modelpack/model-spec.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from serving import errors
from serving.images.documents import layers
from serving.images.documents.output_manifest import OutputManifest
from serving.resources.formats import file_list

MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
INDEX_TYPE = "application/vnd.oci.image.index.v1+json"
CONFIG_TYPE = "application/vnd.oci.image.config.v1+json"
LAYER_TYPE = "application/vnd.oci.image.layer.v1.tar"
EMPTY_TYPE = "application/vnd.oci.empty.v1+json"
EMPTY = b"{}"
MODELPACK_TYPE = "application/vnd.cncf.model.manifest.v1+json"
MODELPACK_CONFIG_TYPE = "application/vnd.cncf.model.config.v1+json"
MODELPACK_WEIGHT_TYPE = "application/vnd.cncf.model.weight.v1.tar"
LINEAGE_TYPE = "application/vnd.slipway.lineage.v1+json"
TITLE = "org.opencontainers.image.title"
FILEPATH = "org.cncf.model.filepath"
FILES = "dev.slipway.files"
"""Annotation of a layer: JSON list of its files' paths, digests and sizes; a layer of others is refused."""
FILE_LIST = "dev.slipway.file-list"
"""Annotation of the layer with the list of all files: the list's digest."""
MAX_MANIFEST = 4 * 1024 * 1024
"""Bytes; registries need not accept more (OCI distribution-spec, "Pushing Manifests")."""
_EPOCH = "1970-01-01T00:00:00Z"


@dataclass(frozen=True)
class File:
    """One file of the image; `path` is relative to `models/`."""

    path: str
    digest: str
    size: int


@dataclass(frozen=True)
class BuiltLayer:
    """A finished layer; digest and size are of its blob."""

    digest: str
    size: int
    files: tuple[File, ...]
    diff_id: str
    """Digest of the uncompressed tar."""
    compression: str = ""
    """Empty or `zstd`."""
    file_list: str = ""
    """Digest of `files.json`, if this is the layer of that list (`files` is then empty); else empty."""


@dataclass(frozen=True)
class Documents:
    """The exact bytes of an image's documents."""

    image: bytes
    config: bytes
    modelpack: bytes
    modelpack_config: bytes


def digest_of(data: bytes) -> str:
    """Return `sha256:<hex>`."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def encode(document: Any) -> bytes:
    """Return canonical bytes: sorted keys, no spaces, UTF-8."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def descriptor(media_type: str, data: bytes) -> dict[str, Any]:
    """Return the OCI descriptor of a blob with this content."""
    return {"mediaType": media_type, "digest": digest_of(data), "size": len(data)}


def referrer(document: Mapping[str, Any], data: bytes) -> dict[str, Any]:
    """Return a manifest's descriptor in a list of referrers (OCI distribution-spec, "Listing Referrers").

    `document` is the parsed manifest, `data` its exact bytes.
    """
    config = document.get("config")
    config_type = config.get("mediaType") if isinstance(config, dict) else None
    optional = {
        "artifactType": document.get("artifactType") or config_type,
        "annotations": document.get("annotations"),
    }
    return descriptor(str(document.get("mediaType") or MANIFEST_TYPE), data) | {
        name: value for name, value in optional.items() if value
    }


def file_list_layer(files: Iterable[File]) -> tuple[BuiltLayer, bytes]:
    """Return the layer of `files.json`, the list of these files, and its blob: a tar without compression."""
    document = file_list.encode((file.path, file.digest, file.size) for file in files)
    blob = layers.of_file_list(document)
    digest = digest_of(blob)
    return BuiltLayer(digest, len(blob), (), digest, file_list=digest_of(document)), blob


def documents(built: Sequence[BuiltLayer], output: OutputManifest) -> Documents:
    """Return the documents of an image and a ModelPack over the same layers.

    Args:
        built: the layers, in order.
        output: the content of `slipway.json`. The manifest may depend on it, as it is one of the files.

    Raises:
        errors.Permanent: `TooManyFiles`, the manifest would be larger than registries accept.
    """
    diff_ids = [layer.diff_id for layer in built]
    config = encode(_config(diff_ids))
    image = encode(
        {
            "schemaVersion": 2,
            "mediaType": MANIFEST_TYPE,
            "config": descriptor(CONFIG_TYPE, config),
            "layers": [_layer(layer, LAYER_TYPE) for layer in built],
            "annotations": _annotations(built, output),
        }
    )
    if len(image) > MAX_MANIFEST:
        raise errors.Permanent(
            "TooManyFiles",
            f"the manifest has {len(image)} bytes, more than {MAX_MANIFEST}: pack small files together",
        )
    pack_config = encode(_modelpack_config(diff_ids, output))
    pack = encode(
        {
            "schemaVersion": 2,
            "mediaType": MANIFEST_TYPE,
            "artifactType": MODELPACK_TYPE,
            "config": descriptor(MODELPACK_CONFIG_TYPE, pack_config),
            "layers": [_layer(layer, MODELPACK_WEIGHT_TYPE) for layer in built],
            "subject": descriptor(MANIFEST_TYPE, image),
        }
    )
    return Documents(image, config, pack, pack_config)


def _config(diff_ids: Sequence[str]) -> dict[str, Any]:
    # The files have no architecture, but containerd needs a value.
    return {
        "architecture": "amd64",
        "os": "linux",
        "created": _EPOCH,
        "config": {},
        "rootfs": {"type": "layers", "diff_ids": list(diff_ids)},
        "history": [{"created": _EPOCH, "created_by": "slipway"} for _ in diff_ids],
    }


def _modelpack_config(diff_ids: Sequence[str], output: OutputManifest) -> dict[str, Any]:
    described = {"name": layers.ROOT} | (
        {"revision": output.source_revision} if output.source_revision else {}
    )
    return {
        "descriptor": described,
        "config": {"format": output.framework} if output.framework else {},
        "modelfs": {"type": "layers", "diffIds": list(diff_ids)},
    }


def _layer(layer: BuiltLayer, media_type: str) -> dict[str, Any]:
    if layer.file_list:
        name, listed = file_list.NAME, {FILE_LIST: layer.file_list}
    else:
        name = f"{layers.ROOT}/{layer.files[0].path}" if len(layer.files) == 1 else layers.ROOT
        files = [{"path": f.path, "digest": f.digest, "size": f.size} for f in layer.files]
        listed = {FILES: encode(files).decode()}
    return {
        "mediaType": f"{media_type}+{layer.compression}" if layer.compression else media_type,
        "digest": layer.digest,
        "size": layer.size,
        "annotations": {TITLE: name, FILEPATH: name, **listed},
    }


def _annotations(built: Sequence[BuiltLayer], output: OutputManifest) -> dict[str, str]:
    files = [file for layer in built for file in layer.files]
    annotations = {
        TITLE: layers.ROOT,
        "dev.slipway.framework": output.framework,
        "dev.slipway.metrics": encode(dict(output.metrics)).decode() if output.metrics else "",
        "dev.slipway.size": str(sum(file.size for file in files)),
        "dev.slipway.file-count": str(len(files)),
        "org.opencontainers.image.revision": output.source_revision,
    }
    return {name: value for name, value in annotations.items() if value}


def lineage(image: bytes, repository: str, facts: Mapping[str, str]) -> tuple[bytes, bytes]:
    """Return (manifest, blob) of the document about the origin of an image's files.

    Args:
        image: the bytes of the image's manifest.
        repository: the image's name without tag or digest.
        facts: the origin, such as the name and uid of the Job.
    """
    blob = encode({"repository": repository, **facts})
    manifest = encode(
        {
            "schemaVersion": 2,
            "mediaType": MANIFEST_TYPE,
            "artifactType": LINEAGE_TYPE,
            "config": descriptor(EMPTY_TYPE, EMPTY),
            "layers": [descriptor(LINEAGE_TYPE, blob)],
            "subject": descriptor(MANIFEST_TYPE, image),
        }
    )
    return manifest, blob

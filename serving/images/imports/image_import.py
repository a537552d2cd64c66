"""The import of an image from outside into the store, layer by layer."""

import threading
from collections.abc import Iterable

from serving import errors
from serving.images.building import source
from serving.images.documents import image, layers, oci
from serving.images.documents.image import invalid
from serving.images.imports.unpacking import FileBudget, Unpacked, least_bytes, most_bytes, unpack
from serving.images.store import disk
from serving.images.store.staging import Staging
from serving.resources.formats import file_list
from serving.settings import StoreSettings


class Import:
    """One image that a pull or a repair adds to the store: its blobs and layers, in any order, then `finish`.

    Several threads may call `add_blob` and `add_layer` at once, `add_layer` for different layers.
    """

    def __init__(self, manifest: bytes, staging: Staging, settings: StoreSettings) -> None:
        self.digest = oci.digest_of(manifest)
        self.image = image.parse(manifest)
        self._manifest = manifest
        self._staging = staging
        self._settings = settings
        self._lock = threading.Lock()
        self._layers = {layer.digest: layer for layer in self.image.layers}
        self._unpacked: dict[str, Unpacked] = {}
        self._budget = FileBudget(source.MAX_FILES)

    def require_room(self) -> None:
        """Check that the disk has room for the layers, as far as the manifest says their sizes.

        Raises:
            errors.Temporary: `DiskFull`.
        """
        needed = sum(least_bytes(layer, self._staging) for layer in self._layers.values())
        disk.require_room(self._staging.path, needed)

    def add_blob(self, digest: str, data: bytes) -> None:
        """Add the config, a manifest that refers to the image (a referrer), or a blob of such a manifest.

        Raises:
            errors.Temporary: `DigestMismatch`, `DiskFull`.
        """
        if (actual := oci.digest_of(data)) != digest:
            raise errors.Temporary(
                "DigestMismatch", f"blob: must be {digest}, got {actual} ({len(data)} bytes)", retry_after=1.0
            )
        with self._lock, disk.full_disk_mapped():
            self._staging.add(data)

    def add_layer(self, digest: str, chunks: Iterable[bytes]) -> None:
        """Unpack a layer while it arrives. After an error it may be added again; adding it twice is a no-op.

        Args:
            digest: of a layer of the manifest.
            chunks: of its blob, which may be compressed.

        Raises:
            errors.Permanent: `InvalidImage`; the message names the member and the rule.
            errors.Temporary: `DigestMismatch`, `DiskFull`.
        """
        layer = self._layers.get(digest)
        if layer is None:
            raise invalid(f"{digest} is no layer of {self.digest}")
        if digest in self._unpacked:
            return
        most = most_bytes(layer, self.image.layers, self._settings)
        unpacked = unpack(layer, self._staging, chunks, most, self._budget)
        with self._lock:
            self._unpacked[digest] = unpacked
            if unpacked.blob is not None:
                self._staging.blobs[digest] = unpacked.blob

    def finish(self) -> tuple[oci.File, ...]:
        """Stage the manifest and return the files, after checking that the image is complete and consistent.

        Raises:
            errors.Permanent: `InvalidImage`.
        """
        for digest in self._layers:
            if digest not in self._unpacked:
                raise invalid(f"layer {digest} was not added")
        self._check_config()
        files = tuple(file for layer in self._unpacked.values() for file in layer.files)
        image.check_paths([file.path for file in files])
        if not files:
            raise invalid(f"{self.digest}: has no file below {layers.ROOT}/")
        self._check_lists(files)
        self._staging.add(self._manifest)
        return files

    def _check_lists(self, files: tuple[oci.File, ...]) -> None:
        """Refuse a layer with a list of other files: no runtime would load files that are not in the list."""
        expected, _ = oci.file_list_layer(files)
        for layer in self.image.layers:
            if not layer.file_list:
                continue
            diff_id = self._unpacked[layer.digest].diff_id
            if layer.file_list != expected.file_list or diff_id != expected.diff_id:
                raise invalid(f"layer {layer.digest}: {file_list.NAME} is not the list of the image's files")

    def _check_config(self) -> None:
        """Refuse a config that lists other uncompressed layers than those that were unpacked."""
        config = self._staging.blobs.get(self.image.config.digest)
        if config is None:
            raise invalid(f"config {self.image.config.digest} was not added")
        listed = image.diff_ids(config.read_bytes(), len(self.image.layers))
        for layer, diff_id in zip(self.image.layers, listed, strict=True):
            actual = self._unpacked[layer.digest].diff_id
            if actual != diff_id:
                raise invalid(
                    f"layer {layer.digest}: its diff ID is {diff_id} in the config, {actual} unpacked"
                )

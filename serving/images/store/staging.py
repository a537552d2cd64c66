"""An image that is being inserted: a private directory, invisible until `ModelStore` commits it."""

from pathlib import Path

from serving.images.documents import image, layers, oci
from serving.images.store import disk


class Staging:
    """The tree of files, and the blobs that these files do not reproduce, below `path`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.tree = path / "tree"
        self.blobs: dict[str, Path] = {}
        """Path of each complete blob by its digest."""
        self.documents: dict[str, str] = {}
        """Digest of the subject by the digest of the staged document."""
        (self.tree / layers.ROOT).mkdir(parents=True)

    def add(self, data: bytes) -> str:
        """Write a small blob; return its digest. Repeating it is a no-op."""
        digest = oci.digest_of(data)
        if digest not in self.blobs:
            path = self.blob_path(digest)
            disk.write_synced(path, data)
            self.blobs[digest] = path
            if subject := image.subject(data):
                self.documents[digest] = subject
        return digest

    def blob_path(self, digest: str) -> Path:
        """Return the path of a staged blob."""
        return self.path / digest.removeprefix("sha256:")

    def kept_blob(self, layer: image.Layer) -> Path | None:
        """Return the path of a layer's blob; None if the files reproduce it."""
        return None if layer.is_reproducible else self.blob_path(layer.digest)

    def file_path(self, path: str) -> Path:
        """Return the path of a file of the image, in a directory that exists."""
        target = self.tree / layers.ROOT / path
        target.parent.mkdir(parents=True, exist_ok=True)
        return target

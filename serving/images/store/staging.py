"""One image on its way into the store: a private directory, invisible until `ModelStore` commits it."""

from pathlib import Path

from serving.images.documents import image, layers, oci
from serving.images.store import disk


class Staging:
    """The tree, and the blobs that are not made from the tree."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.tree = path / "tree"
        self.blobs: dict[str, Path] = {}
        self.documents: dict[str, str] = {}
        """By digest, the image that a staged document refers to."""
        (self.tree / layers.ROOT).mkdir(parents=True)

    def add(self, data: bytes) -> str:
        """Write a small blob; return its digest. Again is a no-op."""
        digest = oci.digest_of(data)
        if digest not in self.blobs:
            path = self.blob_path(digest)
            disk.write_synced(path, data)
            self.blobs[digest] = path
            if subject := image.subject(data):
                self.documents[digest] = subject
        return digest

    def blob_path(self, digest: str) -> Path:
        """Where a blob is written before it is in the store."""
        return self.path / digest.removeprefix("sha256:")

    def file_path(self, path: str) -> Path:
        """Where a file of the image goes; its directory is made."""
        target = self.tree / layers.ROOT / path
        target.parent.mkdir(parents=True, exist_ok=True)
        return target

"""A model store that says how many bytes have been read from it: how far a push is, without the push knowing who asks."""

from collections.abc import Callable, Iterator
from pathlib import Path

from serving.images.store import ModelStore


class CountedStore(ModelStore):
    """As `ModelStore`; tells `on_read` the size of each chunk of a blob that is read, from any thread."""

    def __init__(self, root: Path, on_read: Callable[[int], None]) -> None:
        super().__init__(root)
        self._on_read = on_read

    def read_blob(self, digest: str) -> Iterator[bytes]:
        """Yield a blob, counted."""
        for chunk in super().read_blob(digest):
            yield chunk
            self._on_read(len(chunk))

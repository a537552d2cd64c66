"""Copies the files of a model image from its registry into a volume, and verifies every byte.

A download that breaks continues where it broke. After a copy that was killed, the next one downloads only the
layers of which a file is missing or damaged. At the end the digest of `files.json`, the list of the copied
files, must be the one that the caller expects.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, asynccontextmanager

from serving import errors
from serving.images.building import source
from serving.images.copying.copied_files import CopiedFiles
from serving.images.documents import image, oci
from serving.images.documents.image import Blob, Image, Layer
from serving.images.imports.unpacking import FileBudget, most_bytes, unpack
from serving.images.registry import Reference, Registry, blobs, manifests, transfers
from serving.resources.formats import file_list
from serving.settings import DEFAULTS, StoreSettings

PROGRESS_SECONDS = 5.0
"""Between lines of progress in the log: a person sees that the transfer continues; an hour has 720 lines."""
_MIB = 2**20

_log = logging.getLogger(__name__)


async def copy(
    registry: Registry,
    reference: Reference,
    target: CopiedFiles,
    files_digest: str,
    settings: StoreSettings = DEFAULTS.store,
) -> None:
    """Copy the files of an image; layers whose files an earlier attempt has written are verified and kept.

    Args:
        registry: the client.
        reference: the image, by digest.
        target: gets the files.
        files_digest: expected digest of `files.json`, the list of the files.
        settings: bounds of the unpacked size of compressed layers.

    Raises:
        errors.Permanent: `ImageNotFound`, `InvalidImage`, `Unauthorized` and others of the registry;
            `DigestMismatch`, the list of the files is another.
        errors.Temporary: `RegistryUnavailable`, `DiskFull`; `DigestMismatch`, a download is damaged.
    """
    if await asyncio.to_thread(target.is_complete, files_digest):
        _log.info("%s is copied already, and every file has its digest", reference)
        return
    manifest = await manifests.get_image(registry, reference)
    parsed = image.parse(manifest.data)
    distinct = {layer.digest: layer for layer in parsed.layers}.values()
    # The list of the files is computed from the copied files: images of other builders have no layer with it.
    layers = [layer for layer in distinct if not layer.file_list]
    kept = await asyncio.to_thread(_complete_layers, target, layers)
    kept_files = [file for layer in kept for file in layer.files or ()]
    await asyncio.to_thread(target.keep_only, kept_files)
    missing = [layer for layer in layers if layer not in kept]
    if kept:
        _log.info("%d of %d layers are copied already", len(kept), len(layers))
    async with _progress(reference, sum(layer.size for layer in missing)) as progress:
        attempt = _Attempt(registry, reference, target, parsed, settings=settings, progress=progress)
        copied = await attempt.layers(missing)
    files = [*copied, *kept_files]
    image.check_paths([file.path for file in files])
    document = file_list.encode((file.path, file.digest, file.size) for file in files)
    if (digest := file_list.digest_of(document)) != files_digest:
        raise errors.Permanent(
            "DigestMismatch", f"{reference}: the list of its files must be {files_digest}, got {digest}"
        )
    await asyncio.to_thread(target.finish, document)
    _log.info("copied %d files of %s", len(files), reference)


def _complete_layers(target: CopiedFiles, layers: Sequence[Layer]) -> list[Layer]:
    """Return the layers whose files are all in the volume.

    A layer of another builder is never one of them, as its manifest does not list the files.
    """
    return [layer for layer in layers if layer.files is not None and target.has(layer.files)]


class _DownloadProgress:
    """The bytes of layers that were received, for the log; `total` is how many this attempt downloads."""

    def __init__(self, reference: Reference, total: int) -> None:
        self._reference = reference
        self._total = total
        self.received = 0

    def report(self) -> None:
        received, total = self.received / _MIB, self._total / _MIB
        _log.info("copying %s: received %.1f of %.1f MiB", self._reference, received, total)

    async def run(self) -> None:
        while True:
            await asyncio.sleep(PROGRESS_SECONDS)
            self.report()


@asynccontextmanager
async def _progress(reference: Reference, total: int) -> AsyncIterator[_DownloadProgress]:
    progress = _DownloadProgress(reference, total)
    progress.report()
    reporting = asyncio.create_task(progress.run())
    try:
        yield progress
    finally:
        reporting.cancel()
        await asyncio.wait([reporting])


class _Attempt:
    """The downloads of one attempt, which share a bound of the number of files."""

    def __init__(
        self,
        registry: Registry,
        reference: Reference,
        target: CopiedFiles,
        parsed: Image,
        *,
        settings: StoreSettings,
        progress: _DownloadProgress,
    ) -> None:
        self._registry = registry
        self._reference = reference
        self._target = target
        self._image = parsed
        self._settings = settings
        self._progress = progress
        self._budget = FileBudget(source.MAX_FILES)

    async def layers(self, layers: Sequence[Layer]) -> list[oci.File]:
        """Download and unpack layers, several at a time; return their files, in no order."""
        files: list[oci.File] = []
        limit = self._registry.settings.parallel
        with ThreadPoolExecutor(limit, thread_name_prefix="copy") as threads:

            async def copy_layer(layer: Layer) -> None:
                await transfers.download(
                    threads, self._chunks(layer), lambda chunks: files.extend(self._unpacked(layer, chunks))
                )

            await transfers.in_parallel(limit, copy_layer, layers)
        return files

    def _unpacked(self, layer: Layer, chunks: Iterable[bytes]) -> tuple[oci.File, ...]:
        most = most_bytes(layer, self._image.layers, self._settings)
        return unpack(layer, self._target, chunks, most, self._budget).files

    async def _chunks(self, layer: Layer) -> AsyncGenerator[bytes, None]:
        source_blob = Blob(layer.digest, layer.size)
        async with aclosing(blobs.chunks(self._registry, self._reference, source_blob)) as download:
            async for chunk in download:
                self._progress.received += len(chunk)
                yield chunk

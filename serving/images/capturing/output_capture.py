"""Captures the output of a job as an image in a registry, without a tag: the controllers verify the image,
and then tag it.

A capture that was killed is repeated: the same files give the same digests, and blobs that the registry has
are not sent again.
"""

import asyncio
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from serving import clock, errors
from serving.images.building.model_image import Built, build_image
from serving.images.registry import Reference, Registry, push
from serving.images.store.model_store import CountedStore, ModelStore
from serving.planning.models.capture import Captured

PROGRESS_SECONDS = 5.0
"""Between lines of progress in the log: a person sees that the transfer continues; an hour has 720 lines."""
_MIB = 2**20

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class CaptureSource:
    """The directory of an output, and how its image is built."""

    path: Path
    volume: Path
    """Root of the volume that contains `path`. No component of `path` below the root may be a link, as a link
    could lead out of the volume."""
    lineage: Mapping[str, str]
    """Origin of the files: `apiVersion`, `kind`, `name` and `uid` of the job."""
    framework: str = ""
    compression: Literal["none", "zstd"] = "none"


async def capture_to(registry: Registry, target: Reference, output: CaptureSource, store: Path) -> Captured:
    """Build the image of an output, and push it.

    Args:
        registry: the client.
        target: the repository, without tag and digest.
        output: the directory.
        store: root of a model store, which holds the image until it is pushed.

    Raises:
        errors.Permanent: as `build_image` and `push`.
        errors.Temporary: as `build_image` and `push`; `OutputNotReadable`.
    """
    built = await asyncio.to_thread(_build, output, ModelStore(store), target.name)
    _log.info("built %s of %d files (%.1f MiB)", built.digest, len(built.files), built.size / _MIB)
    progress = _PushProgress(built.size)
    pushed = await push(registry, CountedStore(store, progress.add), built.digest, target)
    sent, skipped = pushed.bytes_uploaded / _MIB, pushed.bytes_skipped / _MIB
    _log.info("pushed %s: sent %.1f MiB, the registry had %.1f MiB", pushed.image, sent, skipped)
    return Captured(target.name, built.digest, built.files_digest)


def _build(output: CaptureSource, store: ModelStore, repository: str) -> Built:
    try:
        return build_image(
            output.path,
            store,
            repository=repository,
            lineage=output.lineage,
            framework=output.framework,
            trusted_root=output.volume,
            compression=output.compression,
        )
    except PermissionError as error:
        raise errors.Temporary(
            "OutputNotReadable",
            f"{error.filename}: user {os.geteuid()} and group {os.getegid()} may not read it: let the Job"
            " write files that all may read, or name its user in securityContext.runAsUser",
        ) from error


class _PushProgress:
    """Logs the bytes of blobs that a push has read and sent; `add` is called from several threads."""

    def __init__(self, total: int) -> None:
        """`total` is the size of the image's files in bytes. Blobs that the registry has are not sent."""
        self._total = total
        self._sent = 0
        self._reported = clock.monotonic()

    def add(self, size: int) -> None:
        self._sent += size
        if clock.monotonic() - self._reported >= PROGRESS_SECONDS:
            self._reported = clock.monotonic()
            _log.info("sent %.1f of at most %.1f MiB", self._sent / _MIB, self._total / _MIB)

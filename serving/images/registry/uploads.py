"""Uploads a blob to a repository in chunks, and resumes an upload that breaks.

Distribution-spec, "Pushing a blob in chunks" and "Pushing blobs": each response has the next address, which
may be relative; after 416, 5xx or a lost connection the registry reports how much it has. Some registries
(distribution 2.8) forget an upload that broke inside a chunk; it then starts again.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator

from yarl import URL

from serving import errors
from serving.images.documents.image import Blob
from serving.images.registry import blobs, responses, retries
from serving.images.registry.client import Registry, RegistryRequest, RegistryResponse, refused
from serving.images.registry.reference import Reference
from serving.system.network import http_headers

_OCTETS = "application/octet-stream"
_FINISH_FACTOR = 10
"""Multiple of `stall_seconds` that the last response may take: a registry on an object store copies the blob
before it answers.
"""
_ABORT_SECONDS = 5.0
"""Longest wait for the response to a cancelled upload."""
_LARGEST_CHUNK = 128 * 1024 * 1024
"""Bytes. A registry that requires larger chunks gets these, and may refuse them: memory is bounded."""


class _BlobReader:
    """Reads windows of a blob in a thread.

    A window that begins before the previous one reads the blob again from its start.
    """

    def __init__(self, begin: Callable[[], Iterable[bytes]]) -> None:
        self._begin = begin
        self._parts: Iterator[bytes] = iter(())
        self._buffered: deque[memoryview] = deque()
        """The parts that were read and may be needed still: the bytes from `_start` to `_end`."""
        self._start = -1
        """Offset in the blob; -1 before the first read."""
        self._end = 0

    async def window(self, offset: int, size: int) -> list[memoryview]:
        """Return `size` bytes from `offset`, or as many as the blob has there."""
        return await asyncio.to_thread(self._window, offset, size)

    def _window(self, offset: int, size: int) -> list[memoryview]:
        if self._start < 0 or offset < self._start:
            self._parts, self._buffered, self._start, self._end = iter(self._begin()), deque(), 0, 0
        while self._end < offset + size:
            part = next(self._parts, None)
            if part is None:
                break
            if part:
                self._buffered.append(memoryview(part))
                self._end += len(part)
            self._drop(offset)
        self._drop(offset)
        window: list[memoryview] = []
        for buffered in self._buffered:
            window.append(buffered[:size])
            size -= len(window[-1])
        return [part for part in window if part]

    def _drop(self, offset: int) -> None:
        """Drop the buffered bytes before an offset in the blob."""
        while self._buffered and self._start < offset:
            dropped = min(offset - self._start, len(self._buffered[0]))
            remaining = self._buffered.popleft()[dropped:]
            if remaining:
                self._buffered.appendleft(remaining)
            self._start += dropped


class _UploadLost(errors.Temporary):
    """The registry no longer knows the upload, or lost a part of it."""

    def __init__(self, response: RegistryResponse) -> None:
        super().__init__(
            responses.UNAVAILABLE,
            f"{response.url.host} lost an upload, or a part of it ({response.status}): "
            f"{responses.explain(response.body)}",
        )


async def upload(
    registry: Registry,
    target: Reference,
    blob: Blob,
    begin: Callable[[], Iterable[bytes]],
    begun: blobs.BegunUpload | None = None,
) -> None:
    """Upload a blob. The registry has checked its digest when this returns.

    Args:
        registry: the client.
        target: the repository.
        blob: digest and size.
        begin: returns the blob's bytes from the start, at each call; read in a thread.
        begun: an upload that the registry has begun already.

    Raises:
        errors.Permanent: `Unauthorized`, `RegistryRefused`.
        errors.Temporary: `RegistryUnavailable` after the last try; `DigestMismatch`, the bytes changed on the
            way.
    """
    upload = _Upload(registry, target, blob, begin, begun)
    try:
        await upload.run()
    finally:
        await upload.abort()


class _Upload:
    def __init__(
        self,
        registry: Registry,
        target: Reference,
        blob: Blob,
        begin: Callable[[], Iterable[bytes]],
        begun: blobs.BegunUpload | None,
    ) -> None:
        self._registry = registry
        self._target = target
        self._blob = blob
        self._reader = _BlobReader(begin)
        self._session: URL | None = None
        self._chunk = registry.settings.chunk_bytes
        """Bytes that one request carries at most."""
        self._offset = 0
        """Bytes that the registry has."""
        self._furthest = 0
        """Largest offset of all attempts."""
        if begun is not None:
            self._use(begun)

    async def run(self) -> None:
        tries = retries.RegistryRetries(self._registry.settings)
        is_broken = False
        while True:
            try:
                if is_broken and await self._recover():
                    return
                if self._session is None:
                    await self._begin()
                while self._has_chunk():
                    await self._patch()
                    if self._offset > self._furthest:  # a restarted upload has made no progress yet
                        self._furthest = self._offset
                        tries.progress()
                await self._finish()
            except errors.Temporary as error:
                await tries.wait(error)
                is_broken = True
            else:
                return

    def _has_chunk(self) -> bool:
        """Whether the next bytes are sent by PATCH. The PUT at the end has the whole blob or no bytes."""
        remaining = self._blob.size - self._offset
        is_begun = self._offset > 0
        return remaining > self._chunk or (is_begun and remaining > 0)

    async def abort(self) -> None:
        """Cancel an unfinished upload, which the registry would otherwise keep for days."""
        if self._session is None:
            return
        request = RegistryRequest(
            "DELETE", self._target, url=self._session, push=True, timeout=_ABORT_SECONDS
        )
        try:
            await self._registry.send(request, retry=False)
        except errors.SlipwayError:
            return  # the caller gets the error of the upload

    async def _begin(self) -> None:
        request = RegistryRequest("POST", self._target, "blobs/uploads/", push=True)
        response = await self._registry.send(request, retry=False)
        self._offset = 0
        begun = blobs.begun_upload(response)
        if begun is None:
            raise refused(request, response)
        self._use(begun)

    def _use(self, begun: blobs.BegunUpload) -> None:
        self._session = begun.url
        self._chunk = max(self._chunk, min(begun.chunk_min, _LARGEST_CHUNK))

    async def _patch(self) -> None:
        assert self._session is not None
        chunk = await self._reader.window(self._offset, self._chunk)
        end = self._offset + _length(chunk)
        self._check_source(end)
        headers = {"Content-Type": _OCTETS, "Content-Range": f"{self._offset}-{end - 1}"}
        request = RegistryRequest(
            "PATCH", self._target, url=self._session, push=True, headers=headers, body=chunk
        )
        response = await self._registry.send(request, retry=False)
        location = response.location()
        if response.status in {404, 416}:
            raise _UploadLost(response)
        if response.status not in {201, 202, 204} or location is None:
            raise refused(request, response)
        received = _received(response, end)
        if not self._offset < received <= end:
            raise _UploadLost(response)
        self._session, self._offset = location, received

    async def _finish(self) -> None:
        """End the upload by PUT, with the whole blob if no chunk was sent before."""
        assert self._session is not None
        chunk = await self._reader.window(self._offset, self._blob.size - self._offset)
        self._check_source(self._offset + _length(chunk))
        request = RegistryRequest(
            "PUT",
            self._target,
            url=self._session.update_query(digest=self._blob.digest),
            push=True,
            headers={"Content-Type": _OCTETS},
            body=chunk,
            timeout=self._registry.settings.stall_seconds * _FINISH_FACTOR,
        )
        response = await self._registry.send(request, retry=False)
        if response.status in {201, 204}:
            self._session = None
            return
        if response.status in {404, 416}:
            raise _UploadLost(response)
        if response.status == 400 and "DIGEST" in responses.explain(response.body).upper():
            self._session = None
            raise errors.Temporary(
                "DigestMismatch",
                f"{self._target.host} received other bytes than those of {self._blob.digest}",
            )
        raise refused(request, response)

    async def _recover(self) -> bool:
        """Ask how much the registry has; return whether it has the whole blob."""
        if self._session is not None:
            request = RegistryRequest("GET", self._target, url=self._session, push=True)
            response = await self._registry.send(request, retry=False)
            received = _received(response, None)
            if response.status in {200, 202, 204} and received <= self._blob.size:
                self._offset = received
                self._session = response.location() or self._session
                return False
        self._session, self._offset = None, 0
        return await blobs.exists(self._registry, self._target, self._blob.digest, push=True)

    def _check_source(self, end: int) -> None:
        """Refuse a source that ends before the blob; `end` is the offset behind the bytes that were read."""
        if end != min(self._blob.size, self._offset + self._chunk):
            raise errors.Permanent(
                "SealBroken", f"{self._blob.digest} ends after {end} of {self._blob.size} bytes"
            )


def _length(parts: Iterable[memoryview]) -> int:
    return sum(len(part) for part in parts)


def _received(response: RegistryResponse, sent_to: int | None) -> int:
    """Return how many bytes the registry has, by `Range: 0-<last>` (inclusive; 0-0 may also mean none).

    Without this header the registry has `sent_to` bytes, which end with the last chunk; 0 if that is unknown.
    """
    text = response.headers.get("Range", "").removeprefix("bytes=")
    last = http_headers.number(text.partition("-")[2])
    if last is None:
        return sent_to or 0
    if sent_to is not None and last == sent_to - 1:
        return sent_to
    return last + 1 if last else 0

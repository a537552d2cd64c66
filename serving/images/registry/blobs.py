"""Blobs of a repository: existence, mounts from other repositories, and downloads that resume."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import NamedTuple

import aiohttp
from yarl import URL

from serving import errors
from serving.images.documents import oci
from serving.images.documents.image import Blob
from serving.images.registry import responses, retries
from serving.images.registry.client import Registry, RegistryRequest, RegistryResponse, refused
from serving.images.registry.reference import Reference
from serving.system.network import http_headers


class BegunUpload(NamedTuple):
    """An upload that a registry has begun."""

    url: URL
    chunk_min: int
    """Bytes of the smallest chunk but the last that the registry accepts."""


def begun_upload(response: RegistryResponse) -> BegunUpload | None:
    """Return the upload that a response to a POST has begun, if any."""
    if response.status != 202 or (url := response.location()) is None:
        return None
    return BegunUpload(url, http_headers.number(response.headers.get("OCI-Chunk-Min-Length", "")) or 0)


async def exists(registry: Registry, target: Reference, digest: str, *, push: bool = False) -> bool:
    """Return whether a repository has a blob.

    Args:
        registry: the client.
        target: the repository.
        digest: of the blob.
        push: whether a push follows: a token that also allows the push serves both.

    Raises:
        errors.Permanent: `Unauthorized`; `RegistryRefused`.
        errors.Temporary: `RegistryUnavailable`.
    """
    request = RegistryRequest("HEAD", target, f"blobs/{digest}", push=push)
    response = await registry.send(request)
    if response.status not in {200, 404}:
        raise refused(request, response)
    return response.status == 200


async def mount(registry: Registry, target: Reference, digest: str, source: str) -> BegunUpload | None:
    """Mount a blob of another repository of the same registry.

    Args:
        registry: the client.
        target: the repository that is to have the blob.
        digest: of the blob.
        source: the other repository, without the host.

    Returns:
        None if it is mounted; else the upload that the registry has begun instead.

    Raises:
        errors.Permanent: `Unauthorized`, for one of the repositories; `RegistryRefused`.
        errors.Temporary: `RegistryUnavailable`.
    """
    url = (registry.base(target) / "blobs/uploads/").with_query(mount=digest, **{"from": source})
    request = RegistryRequest("POST", target, url=url, push=True, also_from=source)
    response = await registry.send(request)
    if response.status == 201:
        return None
    if begun := begun_upload(response):
        return begun
    raise refused(request, response)


async def read(registry: Registry, target: Reference, blob: Blob) -> bytes:
    """Return a small blob, after checking its digest; a blob that arrives with other bytes is read once more.

    Raises:
        errors.Permanent: `ImageNotFound`; `Unauthorized`; `RegistryRefused`.
        errors.Temporary: `DigestMismatch`; `RegistryUnavailable`.
    """
    try:
        return await _read_once(registry, target, blob)
    except errors.Temporary as error:
        if error.reason != "DigestMismatch":
            raise
    return await _read_once(registry, target, blob)


async def _read_once(registry: Registry, target: Reference, blob: Blob) -> bytes:
    content = bytearray()
    async with aclosing(chunks(registry, target, blob)) as download:
        async for chunk in download:
            content += chunk
    data = bytes(content)
    if oci.digest_of(data) != blob.digest:
        raise wrong_bytes(target, blob.digest)
    return data


async def chunks(registry: Registry, target: Reference, blob: Blob) -> AsyncGenerator[bytes, None]:
    """Yield exactly `blob.size` bytes, whose digest the caller must check. A download that breaks resumes at
    the offset that it reached.

    Raises:
        errors.Permanent: `ImageNotFound`; `Unauthorized`; `RegistryRefused`.
        errors.Temporary: `DigestMismatch`, another size than the manifest's; `RegistryUnavailable`.
    """
    tries = retries.RegistryRetries(registry.settings)
    offset = 0
    offset_of_last_progress = 0
    while offset < blob.size:
        try:
            async with aclosing(_from(registry, target, blob, offset)) as download:
                async for chunk in download:
                    offset += len(chunk)
                    if offset - offset_of_last_progress >= registry.settings.chunk_bytes:
                        tries.progress()
                        offset_of_last_progress = offset
                    yield chunk
        except errors.Temporary as error:
            await tries.wait(error)


async def _from(
    registry: Registry, target: Reference, blob: Blob, offset: int
) -> AsyncGenerator[bytes, None]:
    """Yield the bytes of a blob from an offset to its end, by one request."""
    headers = {"Range": f"bytes={offset}-"} if offset else {}
    request = RegistryRequest("GET", target, f"blobs/{blob.digest}", headers=headers)
    async with registry.stream(request) as response:
        if response.status == 404:
            raise errors.Permanent("ImageNotFound", f"{target.name} has no blob {blob.digest}")
        if response.status not in {200, 206}:
            raise refused(request, await registry.read(request, response))
        skip = offset - _begins_at(response)  # bytes that the caller has already
        if skip < 0:
            raise errors.Temporary(responses.UNAVAILABLE, f"{target.host} sent another range than requested")
        reader = _PacedReader(registry, target.host)
        while chunk := await reader.read(response):
            fresh, skip = chunk[skip:], max(0, skip - len(chunk))
            offset += len(fresh)
            if offset > blob.size:
                raise wrong_bytes(target, blob.digest)
            if fresh:
                yield fresh
        # The body is complete and too short: the registry has other bytes, and the connection did not break.
        if response.status == 200 and response.content_length == offset < blob.size:
            raise wrong_bytes(target, blob.digest)
        if offset < blob.size:
            raise errors.Temporary(
                responses.UNAVAILABLE, f"{target.host} ended {blob.digest} after {offset} bytes"
            )


def _begins_at(response: aiohttp.ClientResponse) -> int:
    """Return the offset of the body's first byte, or -1 if the response names none.

    A server may ignore Range and send the whole blob, with 200.
    """
    if response.status == 200:
        return 0
    unit, _, byte_range = response.headers.get("Content-Range", "").partition(" ")
    first = byte_range.partition("-")[0]
    number = http_headers.number(first) if unit == "bytes" else None
    return -1 if number is None else number


class _PacedReader:
    """Reads chunks, and gives up on a peer that sends fewer than `slowest_bytes_per_second` for
    `stall_seconds`.

    Only time spent waiting for the peer counts, not the time that the caller takes for a chunk.
    """

    def __init__(self, registry: Registry, host: str) -> None:
        self._settings = registry.settings
        self._host = host
        self._seconds_left = self._settings.stall_seconds
        self._moved = 0  # bytes since the time was last reset

    async def read(self, response: aiohttp.ClientResponse) -> bytes:
        """Return the next chunk, or b'' at the end.

        Raises:
            errors.Temporary: `RegistryUnavailable`.
        """
        loop = asyncio.get_running_loop()
        with responses.mapped(self._host, self._settings.stall_seconds):
            began = loop.time()
            async with asyncio.timeout(self._seconds_left):
                chunk = await response.content.readany()
            self._seconds_left -= loop.time() - began
        self._moved += len(chunk)
        if self._moved >= self._settings.stall_seconds * self._settings.slowest_bytes_per_second:
            self._moved = 0
            self._seconds_left = self._settings.stall_seconds
        return chunk


def wrong_bytes(target: Reference, digest: str) -> errors.Temporary:
    """Return the error for bytes that do not have their digest."""
    return errors.Temporary("DigestMismatch", f"{target.host} sent other bytes than those of {digest}")

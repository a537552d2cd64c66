"""Blobs of a repository: whether one is there, a mount from another repository, and downloads that go on
where they broke.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

import aiohttp
from yarl import URL

from serving import errors
from serving.images.documents import oci
from serving.images.documents.image import Blob
from serving.images.registry import responses
from serving.images.registry.client import Call, Registry, refused
from serving.images.registry.reference import Reference


async def exists(registry: Registry, target: Reference, digest: str, *, push: bool = False) -> bool:
    """Ask whether a repository has a blob.

    Args:
        registry: the client.
        target: the repository.
        digest: of the blob.
        push: whether pushing comes next, so that one token is enough.
    """
    call = Call("HEAD", target, f"blobs/{digest}", push=push)
    answer = await registry.ask(call)
    if answer.status not in {200, 404}:
        raise refused(call, answer)
    return answer.status == 200


async def mount(registry: Registry, target: Reference, digest: str, source: str) -> URL | None:
    """Take a blob over from another repository of the same registry.

    Args:
        registry: the client.
        target: where the blob is wanted.
        digest: of the blob.
        source: the other repository, without the host.

    Returns:
        None when it is mounted; else the upload that the registry has begun in its place.

    Raises:
        errors.Permanent: `Unauthorized`, for one of the repositories; `RegistryRefused`.
    """
    url = (registry.base(target) / "blobs/uploads/").with_query(mount=digest, **{"from": source})
    call = Call("POST", target, url=url, push=True, also_from=source)
    answer = await registry.ask(call)
    if answer.status == 201:
        return None
    if answer.status == 202 and (location := answer.location()):
        return location
    raise refused(call, answer)


async def read(registry: Registry, target: Reference, blob: Blob) -> bytes:
    """Return a small blob whose digest has been checked.

    Raises:
        errors.Permanent: `ImageNotFound`; `Unauthorized`.
        errors.Temporary: `DigestMismatch`; `RegistryUnavailable`.
    """
    parts = bytearray()
    async with aclosing(pieces(registry, target, blob)) as arriving:
        async for piece in arriving:
            parts += piece
    data = bytes(parts)
    if oci.digest_of(data) != blob.digest:
        raise wrong_bytes(target, blob.digest)
    return data


async def pieces(registry: Registry, target: Reference, blob: Blob) -> AsyncGenerator[bytes, None]:
    """Yield exactly `blob.size` bytes; whoever uses them must check the digest. A broken download goes on
    where it broke.

    Raises:
        errors.Permanent: `ImageNotFound`; `Unauthorized`.
        errors.Temporary: `DigestMismatch`, more or fewer bytes than the manifest says; `RegistryUnavailable`.
    """
    patience = responses.Patience(registry.settings)
    offset = since = 0
    while offset < blob.size:
        try:
            async with aclosing(_from(registry, target, blob, offset)) as arriving:
                async for piece in arriving:
                    offset += len(piece)
                    if offset - since >= registry.settings.chunk_bytes:
                        patience.progress()
                        since = offset
                    yield piece
        except errors.Temporary as error:
            await patience.wait(error)


async def _from(
    registry: Registry, target: Reference, blob: Blob, offset: int
) -> AsyncGenerator[bytes, None]:
    headers = {"Range": f"bytes={offset}-"} if offset else {}
    call = Call("GET", target, f"blobs/{blob.digest}", headers=headers)
    async with registry.stream(call) as response:
        if response.status == 404:
            raise errors.Permanent("ImageNotFound", f"{target.name} has no blob {blob.digest}")
        if response.status not in {200, 206}:
            raise errors.Permanent(
                "RegistryRefused", f"{target.host}: GET of {blob.digest} answered {response.status}"
            )
        skip = offset - _begins_at(response)
        if skip < 0:
            raise errors.Temporary(
                responses.UNAVAILABLE, f"{target.host} answered another range than was asked for"
            )
        pace = _Pace(registry, target.host)
        while piece := await pace.read(response):
            fresh, skip = piece[skip:], max(0, skip - len(piece))
            offset += len(fresh)
            if offset > blob.size:
                raise wrong_bytes(target, blob.digest)
            if fresh:
                yield fresh
        if offset < blob.size:
            raise errors.Temporary(
                responses.UNAVAILABLE, f"{target.host} ended {blob.digest} after {offset} bytes"
            )


def _begins_at(response: aiohttp.ClientResponse) -> int:
    """Return the offset of the body's first byte: a server may ignore Range and begin anew."""
    if response.status == 200:
        return 0
    unit, _, rest = response.headers.get("Content-Range", "").partition(" ")
    first = rest.partition("-")[0]
    number = responses.number(first) if unit == "bytes" else None
    return -1 if number is None else number


class _Pace:
    """Reads pieces, and gives up on a peer that trickles. Only waiting for the peer counts: our own disk may
    be slow.
    """

    def __init__(self, registry: Registry, host: str) -> None:
        self._settings = registry.settings
        self._host = host
        self._left = self._settings.stall_seconds
        self._moved = 0

    async def read(self, response: aiohttp.ClientResponse) -> bytes:
        """Return the next piece, or b'' at the end.

        Raises:
            errors.Temporary: `RegistryUnavailable`.
        """
        loop = asyncio.get_running_loop()
        with responses.mapped(self._host, self._settings.stall_seconds):
            began = loop.time()
            async with asyncio.timeout(self._left):
                piece = await response.content.readany()
            self._left -= loop.time() - began
        self._moved += len(piece)
        if self._moved >= self._settings.stall_seconds * self._settings.slowest_bytes_per_second:
            self._moved = 0
            self._left = self._settings.stall_seconds
        return piece


def wrong_bytes(target: Reference, digest: str) -> errors.Temporary:
    """Return the error for bytes that are not what their digest says: a peer's disk, or one who changes them."""
    return errors.Temporary("DigestMismatch", f"what {target.host} sent for {digest} is something else")

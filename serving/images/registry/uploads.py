"""One blob into one repository: in chunks, and on from where the registry still has it when something broke.

Distribution-spec, "Pushing a blob in chunks" and "Pushing blobs": every answer names the next address, which
may be relative; after 416, 5xx or a lost connection the registry is asked how far it came. Some registries
(distribution 2.8) forget an upload that broke inside a chunk: then the blob begins anew.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator

from yarl import URL

from serving import errors
from serving.images.documents.image import Blob
from serving.images.registry import blobs, responses
from serving.images.registry.client import Answer, Call, Registry, refused
from serving.images.registry.reference import Reference

_OCTETS = "application/octet-stream"
_FINISH_FACTOR = 10
"""How much longer than another answer the last one may take: a registry on an object store copies the blob
then.
"""
_ABORT_SECONDS = 5.0
_LARGEST_CHUNK = 128 * 1024 * 1024
"""A registry that wants larger chunks gets these and may refuse them: it is our memory."""


class _Source:
    """Windows of a blob's bytes, kept once; reading goes on in a thread, and begins anew to go back."""

    def __init__(self, begin: Callable[[], Iterable[bytes]]) -> None:
        self._begin = begin
        self._parts: Iterator[bytes] = iter(())
        self._held: deque[memoryview] = deque()
        self._start = -1
        self._end = 0

    async def window(self, offset: int, size: int) -> list[memoryview]:
        """Return the bytes from `offset`, `size` of them unless the blob ends before."""
        return await asyncio.to_thread(self._window, offset, size)

    def _window(self, offset: int, size: int) -> list[memoryview]:
        if self._start < 0 or offset < self._start:
            self._parts, self._held, self._start, self._end = iter(self._begin()), deque(), 0, 0
        while self._end < offset + size:
            part = next(self._parts, None)
            if part is None:
                break
            if part:
                self._held.append(memoryview(part))
                self._end += len(part)
            self._drop(offset)
        self._drop(offset)
        window: list[memoryview] = []
        for held in self._held:
            window.append(held[:size])
            size -= len(window[-1])
        return [piece for piece in window if piece]

    def _drop(self, offset: int) -> None:
        while self._held and self._start < offset:
            gone = min(offset - self._start, len(self._held[0]))
            rest = self._held.popleft()[gone:]
            if rest:
                self._held.appendleft(rest)
            self._start += gone


class _Gone(errors.Temporary):
    """The registry no longer knows the upload, or has another idea of it."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(
            responses.UNAVAILABLE,
            f"{answer.url.host} lost an upload, or a part of it ({answer.status}): {responses.explain(answer.body)}",
        )


async def upload(
    registry: Registry,
    target: Reference,
    blob: Blob,
    begin: Callable[[], Iterable[bytes]],
    session: URL | None = None,
) -> None:
    """Upload a blob; when it returns, the registry has checked the digest.

    Args:
        registry: the client.
        target: the repository.
        blob: digest and size.
        begin: gives the blob's bytes from the first one on, as often as is needed; read in a thread.
        session: an upload that the registry has begun already.

    Raises:
        errors.Permanent: `Unauthorized`, `RegistryRefused`.
        errors.Temporary: `RegistryUnavailable` after the last try; `DigestMismatch`, the bytes changed on
            their way.
    """
    work = _Upload(registry, target, blob, begin, session)
    try:
        await work.run()
    finally:
        await work.abort()


class _Upload:
    def __init__(
        self,
        registry: Registry,
        target: Reference,
        blob: Blob,
        begin: Callable[[], Iterable[bytes]],
        session: URL | None,
    ) -> None:
        self._registry = registry
        self._target = target
        self._blob = blob
        self._source = _Source(begin)
        self._session = session
        self._chunk = registry.settings.chunk_bytes
        self._offset = 0
        self._furthest = 0

    async def run(self) -> None:
        patience = responses.Patience(self._registry.settings)
        broken = False
        while True:
            try:
                if broken and await self._recover():
                    return
                if self._session is None:
                    await self._begin()
                while self._blob.size - self._offset > self._chunk or (
                    self._offset and self._offset < self._blob.size
                ):
                    await self._patch()
                    if self._offset > self._furthest:  # a blob that begins anew has come nowhere yet
                        self._furthest = self._offset
                        patience.progress()
                await self._finish()
            except errors.Temporary as error:
                await patience.wait(error)
                broken = True
            else:
                return

    async def abort(self) -> None:
        """Tell the registry that an unfinished upload will not go on; it would find out by itself some days
        later.
        """
        if self._session is None:
            return
        call = Call("DELETE", self._target, url=self._session, push=True, patience=_ABORT_SECONDS)
        try:
            await self._registry.ask(call, retry=False)
        except errors.SlipwayError:
            return  # what broke the upload is what matters

    async def _begin(self) -> None:
        call = Call("POST", self._target, "blobs/uploads/", push=True)
        answer = await self._registry.ask(call, retry=False)
        self._session, self._offset = answer.location(), 0
        if answer.status != 202 or self._session is None:
            raise refused(call, answer)
        least = responses.number(answer.headers.get("OCI-Chunk-Min-Length", ""))
        self._chunk = max(self._chunk, min(least or 0, _LARGEST_CHUNK))

    async def _patch(self) -> None:
        assert self._session is not None
        chunk = await self._source.window(self._offset, self._chunk)
        end = self._offset + _length(chunk)
        self._check_source(end)
        headers = {"Content-Type": _OCTETS, "Content-Range": f"{self._offset}-{end - 1}"}
        call = Call("PATCH", self._target, url=self._session, push=True, headers=headers, body=chunk)
        answer = await self._registry.ask(call, retry=False)
        location = answer.location()
        if answer.status in {404, 416}:
            raise _Gone(answer)
        if answer.status not in {201, 202, 204} or location is None:
            raise refused(call, answer)
        received = _received(answer, end)
        if not self._offset < received <= end:
            raise _Gone(answer)
        self._session, self._offset = location, received

    async def _finish(self) -> None:
        assert self._session is not None
        chunk = await self._source.window(self._offset, self._blob.size - self._offset)
        self._check_source(self._offset + _length(chunk))
        call = Call(
            "PUT",
            self._target,
            url=self._session.update_query(digest=self._blob.digest),
            push=True,
            headers={"Content-Type": _OCTETS},
            body=chunk,
            patience=self._registry.settings.stall_seconds * _FINISH_FACTOR,
        )
        answer = await self._registry.ask(call, retry=False)
        if answer.status in {201, 204}:
            self._session = None
            return
        if answer.status in {404, 416}:
            raise _Gone(answer)
        if answer.status == 400 and "DIGEST" in responses.explain(answer.body).upper():
            self._session = None
            raise errors.Temporary(
                "DigestMismatch", f"{self._target.host} got other bytes than {self._blob.digest} has"
            )
        raise refused(call, answer)

    async def _recover(self) -> bool:
        """Find out how far the registry came; return whether it has the whole blob (only its answer was
        lost).
        """
        if self._session is not None:
            call = Call("GET", self._target, url=self._session, push=True)
            answer = await self._registry.ask(call, retry=False)
            received = _received(answer, None)
            if answer.status in {200, 202, 204} and received <= self._blob.size:
                self._offset = received
                self._session = answer.location() or self._session
                return False
        self._session, self._offset = None, 0
        return await blobs.exists(self._registry, self._target, self._blob.digest, push=True)

    def _check_source(self, end: int) -> None:
        if end != min(self._blob.size, self._offset + self._chunk):
            raise errors.Permanent(
                "SealBroken", f"{self._blob.digest} ends after {end} of {self._blob.size} bytes"
            )


def _length(parts: Iterable[memoryview]) -> int:
    return sum(len(part) for part in parts)


def _received(answer: Answer, sent_to: int | None) -> int:
    """Return how many bytes the registry says it has (`Range: 0-<last>`, inclusive; 0-0 is said of nothing
    too).
    """
    text = answer.headers.get("Range", "").removeprefix("bytes=")
    last = responses.number(text.partition("-")[2])
    if last is None:
        return sent_to or 0
    if sent_to is not None and last == sent_to - 1:
        return sent_to
    return last + 1 if last else 0

"""Decodes large requests beside the event loop, one at a time and in order, within a bound of memory.

A parser does not let other threads run before its end: the loop answers health checks between two requests.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Executor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TypeVar

from serving import errors
from serving.runtimes.open_inference.protocol import InferenceRequest, Tensor
from serving.runtimes.request_memory import RequestMemory

MANY_VALUES = 8192
"""An answer with more is encoded beside the event loop: it takes some milliseconds."""
_STRING_BYTES = 60
"""An element of BYTES: its place and an object of a few bytes."""

Result = TypeVar("Result")


@dataclass(frozen=True)
class Prepared:
    """A complete, decompressed request."""

    memory: int
    """Bytes that decoding takes, at most the bound."""
    decode: Callable[[], InferenceRequest]


class LargeRequests:
    """The requests of one replica above `decoding_memory.SMALL_BYTES`."""

    def __init__(self, memory: RequestMemory, worker: Executor) -> None:
        """Args: worker: one thread, for nothing else; a prediction would delay the decoding of the next."""
        self.memory = memory
        self._worker = worker
        self._turn = asyncio.Lock()
        self._left = asyncio.Event()
        self._decoded = 0
        self.received = 0
        """Bytes of bodies whose requests are not answered."""

    async def run(self, function: Callable[[], Result]) -> Result:
        """Return the function's result, computed by the worker."""
        return await asyncio.get_running_loop().run_in_executor(self._worker, function)

    @asynccontextmanager
    async def decoded(self, prepare: Callable[[], Prepared]) -> AsyncIterator[InferenceRequest]:
        """Decode a request in its turn, once the ones that are being answered leave room for it.

        Args:
            prepare: decompresses the body, and raises errors.ApiError if decoding takes too much memory.
        """
        async with self._turn:
            prepared = await self.run(prepare)
            while self._decoded and self._decoded + prepared.memory > self.memory.decoding:
                self._left.clear()
                await self._left.wait()
            request = await self.run(prepared.decode)
            size = _size(request.inputs)
            del prepared
            self._decoded += size
        try:
            yield request
        finally:
            self._decoded -= size
            self._left.set()


class BodyRoom:
    """The part of the memory for bodies that one request takes, until it is answered."""

    def __init__(self, requests: LargeRequests) -> None:
        self._requests = requests
        self._size = 0

    def grow(self, size: int) -> bool:
        """Take the room of so many bytes in all; return whether there is so much."""
        if self._requests.received + size - self._size > self._requests.memory.bodies:
            return False
        self._requests.received += size - self._size
        self._size = size
        return True

    def leave(self) -> None:
        """Leave the room to others."""
        self._requests.received -= self._size
        self._size = 0


def many_values(outputs: Sequence[tuple[Tensor, bool]]) -> bool:
    """Return whether an answer is encoded beside the event loop."""
    return sum(tensor.array.size for tensor, _ in outputs) > MANY_VALUES


def too_many(retry_after: int) -> errors.Temporary:
    """Return the error of a body for which there is no room."""
    return errors.Temporary("TooManyBytes", "large requests already fill the memory for them", retry_after)


def _size(inputs: Sequence[Tensor]) -> int:
    """Return the bytes of decoded tensors."""
    return sum(tensor.array.nbytes if tensor.array.dtype != object else _strings(tensor) for tensor in inputs)


def _strings(tensor: Tensor) -> int:
    return tensor.array.size * _STRING_BYTES + sum(map(len, tensor.array.ravel().tolist()))

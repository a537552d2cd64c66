"""Decodes large requests on a worker thread, one at a time and in order, within a bound of memory.

A parser holds Python's interpreter lock until its end, so the event loop can answer health checks only
between two requests.
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
"""Elements of all outputs. An answer with more is encoded on the worker thread, as it takes milliseconds."""
_STRING_BYTES = 60
"""Memory of an element of BYTES besides its content: the array's reference and the `bytes` object."""

Result = TypeVar("Result")


@dataclass(frozen=True)
class Prepared:
    """A complete, decompressed request."""

    needed_memory: int
    """Estimate of the bytes that decoding takes, at most `RequestMemory.decoding`."""
    decode: Callable[[], InferenceRequest]
    """Refers to the decompressed body."""


class LargeRequests:
    """The requests of one replica above `decoding_memory.SMALL_BYTES`."""

    def __init__(self, memory: RequestMemory, worker: Executor) -> None:
        """Args: worker: one thread, for nothing else; a prediction would delay the decoding of the next."""
        self.memory = memory
        self._worker = worker
        self._turn = asyncio.Lock()
        self._freed = asyncio.Event()
        """Set when an answered request frees its tensors."""
        self._decoded_bytes = 0
        """Bytes of the tensors of the requests that are being answered."""
        self.received_bytes = 0
        """Bytes that all `BodyRoom`s hold together, at most `RequestMemory.bodies`."""

    async def run(self, function: Callable[[], Result]) -> Result:
        """Return the function's result, computed on the worker thread."""
        return await asyncio.get_running_loop().run_in_executor(self._worker, function)

    @asynccontextmanager
    async def decoded(self, prepare: Callable[[], Prepared]) -> AsyncIterator[InferenceRequest]:
        """Decode a request in its turn, once the requests that are being answered leave memory for it.

        The request counts as being answered until the context ends.

        Args:
            prepare: decompresses the body, and raises errors.ApiError if decoding takes too much memory; runs
                on the worker thread, as `Prepared.decode` does.
        """
        async with self._turn:
            prepared = await self.run(prepare)
            while self._decoded_bytes and self._decoded_bytes + prepared.needed_memory > self.memory.decoding:
                self._freed.clear()
                await self._freed.wait()
            request = await self.run(prepared.decode)
            size = _tensor_bytes(request.inputs)
            del prepared  # so that no decompressed JSON is kept during the prediction
            self._decoded_bytes += size
        try:
            yield request
        finally:
            self._decoded_bytes -= size
            self._freed.set()


class BodyRoom:
    """One request's part of the memory for received bodies (`RequestMemory.bodies`), until its release."""

    def __init__(self, requests: LargeRequests) -> None:
        self._requests = requests
        self._size = 0

    def grow(self, size: int) -> bool:
        """Hold `size` bytes in all; return False, without a change, where they exceed the bound."""
        added = size - self._size
        if self._requests.received_bytes + added > self._requests.memory.bodies:
            return False
        self._requests.received_bytes += added
        self._size = size
        return True

    def release(self) -> None:
        """Release the memory to other requests. Repeating it is a no-op."""
        self._requests.received_bytes -= self._size
        self._size = 0


def many_values(outputs: Sequence[tuple[Tensor, bool]]) -> bool:
    """Return whether an answer is encoded on the worker thread.

    Args:
        outputs: each tensor, and whether it is sent as binary.
    """
    return sum(tensor.array.size for tensor, _ in outputs) > MANY_VALUES


def too_many(retry_after: int) -> errors.Temporary:
    """Return the error of a body for which there is no room."""
    return errors.Temporary("TooManyBytes", "large requests already fill the memory for them", retry_after)


def _tensor_bytes(inputs: Sequence[Tensor]) -> int:
    """Return the bytes of memory of decoded tensors."""
    return sum(
        tensor.array.nbytes if tensor.array.dtype != object else _string_tensor_bytes(tensor)
        for tensor in inputs
    )


def _string_tensor_bytes(tensor: Tensor) -> int:
    """Return the bytes of memory of a tensor of BYTES, whose elements are objects."""
    return tensor.array.size * _STRING_BYTES + sum(map(len, tensor.array.ravel().tolist()))

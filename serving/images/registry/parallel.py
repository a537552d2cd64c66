"""Several transfers at once: the first error ends them all, and is the one that is raised."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from serving import errors

T = TypeVar("T")


async def run(limit: int, work: Callable[[T], Awaitable[None]], items: Iterable[T]) -> None:
    """Do the work for each item, at most `limit` at a time.

    Raises:
        errors.SlipwayError: the first that the work raised; the rest was cancelled and has ended.
    """
    places = asyncio.Semaphore(limit)

    async def one(item: T) -> None:
        async with places:
            await work(item)

    try:
        async with asyncio.TaskGroup() as group:
            for item in items:
                group.create_task(one(item))
    except ExceptionGroup as group_error:
        known, _ = group_error.split(errors.SlipwayError)
        first = _leaf(known or group_error)
        raise first from first.__cause__


def _leaf(error: Exception) -> Exception:
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error

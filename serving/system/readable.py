"""Waits on the event loop for a descriptor."""

import asyncio


async def until_readable(descriptor: int) -> None:
    """Return when a descriptor is readable, as the pidfd of an ended process is."""
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    loop.add_reader(descriptor, readable.set)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(descriptor)

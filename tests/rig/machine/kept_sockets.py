"""The sockets that one process keeps for another one: those that both have open."""

import asyncio
import time
from pathlib import Path

from tests.rig.servers.stack import LiveStack

SECONDS = 20.0
"""Longest wait; the keeper asks each second."""


async def until_kept(stack: LiveStack, name: str, sockets: int) -> None:
    """Wait until `up` keeps this number of sockets for the component that runs."""
    up, component = stack.component("up"), stack.component(name)
    assert up is not None
    while component is None:
        await asyncio.sleep(0.1)
        component = stack.component(name)
    await until_shared(up.pid, component.pid, sockets)


async def until_shared(first: int, second: int, sockets: int) -> None:
    """Wait until two processes have this number of sockets in common."""
    deadline = time.monotonic() + SECONDS
    while (count := len(_sockets(first) & _sockets(second))) != sockets:
        assert time.monotonic() < deadline, f"{first} and {second} have {count} sockets, not {sockets}"
        await asyncio.sleep(0.1)


def _sockets(pid: int) -> set[str]:
    links = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            links.add(str(entry.readlink()))
        except FileNotFoundError:  # closed meanwhile
            continue
    return {link for link in links if link.startswith("socket:")}

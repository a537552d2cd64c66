"""The sockets that `up` keeps for a component: those that both processes have open."""

import asyncio
import time
from pathlib import Path

from serving.system.processes import ProcessIdentity
from tests.rig.servers.stack import LiveStack

SECONDS = 20.0
"""Longest wait; `up` asks each second."""


def _sockets(process: ProcessIdentity) -> set[str]:
    links = set()
    for entry in Path(f"/proc/{process.pid}/fd").iterdir():
        try:
            links.add(str(entry.readlink()))
        except FileNotFoundError:  # closed meanwhile
            continue
    return {link for link in links if link.startswith("socket:")}


async def until_kept(stack: LiveStack, name: str, sockets: int) -> None:
    """Wait until `up` keeps this number of sockets for the component."""
    deadline = time.monotonic() + SECONDS
    while (count := _count(stack, name)) != sockets:
        assert time.monotonic() < deadline, f"up keeps {count} sockets for {name}, not {sockets}"
        await asyncio.sleep(0.1)


def _count(stack: LiveStack, name: str) -> int:
    """Return the number of sockets that `up` keeps for the component that runs; 0 if none does."""
    up, component = stack.component("up"), stack.component(name)
    return len(_sockets(up) & _sockets(component)) if up and component else 0

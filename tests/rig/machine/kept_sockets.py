"""The sockets that `up` keeps for the node: those that both processes have open."""

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


def count(stack: LiveStack) -> int:
    """Return the number of sockets that `up` keeps for the node that runs; 0 if none does."""
    up, node = stack.component("up"), stack.component("node")
    return len(_sockets(up) & _sockets(node)) if up and node else 0

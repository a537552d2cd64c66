"""A process of another user that tries to bind a port in every way, meanwhile or once."""

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

USER = 65534
"""The other user, nobody."""
PROGRAM = Path(__file__).parents[2] / "programs" / "port_thief.py"


@dataclass
class Thief:
    """What it has done, once it has ended."""

    rounds: int = 0
    """How often it has tried all ways."""
    bound: dict[str, int] = field(default_factory=dict)
    """The ways that succeeded, with the round in which each did first."""


@contextlib.contextmanager
def trying(address: str, port: int) -> Iterator[Thief]:
    """Let it try while the block runs, at least once."""
    thief = Thief()
    command = [sys.executable, "-S", "-E", str(PROGRAM), str(USER), address, str(port)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield thief
        finally:
            output, _ = process.communicate()
        thief.rounds, thief.bound = json.loads(output).values()


def ways_to_bind(address: str, port: int) -> list[str]:
    """Return the ways in which another user can bind a port now."""
    with trying(address, port) as thief:
        pass
    return list(thief.bound)

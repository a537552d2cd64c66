"""Runs of one coroutine, each in a fork of a process that has imported its modules."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
_LOOP = """
import asyncio, json, os, signal, sys
from pathlib import Path
{program}
for line in iter(sys.stdin.readline, ""):
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            asyncio.run(main(*json.loads(line)))
            code = 0
        finally:
            os._exit(code)
    print("started", flush=True)
    if sys.stdin.readline() == "kill\\n":
        os.kill(pid, signal.SIGKILL)  # the pid stays ours until waitpid
    print(os.waitpid(pid, 0)[1], flush=True)
"""


class Killable:
    """`program` defines `async def main(*texts)`."""

    def __init__(self, program: str) -> None:
        self._parent = subprocess.Popen(
            [sys.executable, "-c", _LOOP.format(program=program)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def _command(self, text: str) -> bytes:
        assert self._parent.stdin is not None
        assert self._parent.stdout is not None
        self._parent.stdin.write(text.encode() + b"\n")
        self._parent.stdin.flush()
        return self._parent.stdout.readline()

    def start(self, *texts: object) -> None:
        """Begin a run with these arguments."""
        assert self._command(json.dumps([str(text) for text in texts])) == b"started\n"

    def kill(self) -> None:
        """SIGKILL the run, unless it has ended, and wait for its end."""
        self._command("kill")

    def wait(self) -> int:
        """Wait for the end of the run; return its wait status, 0 on success."""
        return int(self._command("wait"))

    def close(self) -> None:
        """End the parent; no run may be in progress."""
        assert self._parent.stdin is not None
        assert self._parent.stdout is not None
        self._parent.stdin.close()
        self._parent.wait()
        self._parent.stdout.close()

"""Asks the zygote of components for processes, and starts it when there is none.

The zygote (`serving/cli/machine/zygote.py`) has imported the components and forks them, which takes
milliseconds where a new interpreter takes a second of CPU time. Components continue when the zygote ends.
`serving/cli/machine/zygote.py` describes the packets.
"""

import asyncio
import errno
import logging
import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any, BinaryIO

import orjson

from serving.data_dir import DataDir
from serving.settings import SupervisorSettings
from serving.system import processes
from serving.system.files import run_files
from serving.system.processes import ProcessIdentity

log = logging.getLogger(__name__)

NAME = "zygote"
"""Name of its process identity in the data directory, for users: a zygote ends with its `up`."""
_MESSAGE_BYTES = 4096
"""More than the longest packet of the zygote."""


class ComponentZygote:
    """The zygote of one `up`. It is replaced when it is needed and has ended, or does not answer."""

    def __init__(
        self,
        data_dir: DataDir,
        arguments: Sequence[str],
        settings: SupervisorSettings,
        environment: Mapping[str, str],
    ) -> None:
        """`arguments` follow `component NAME` on every component's command line."""
        self._data_dir = data_dir
        self._arguments = arguments
        self._settings = settings
        self._environment = environment
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: socket.socket | None = None
        self._answer: asyncio.Future[dict[str, Any]] | None = None
        """The zygote's answer to the newest `fork`."""
        self._imported: set[str] = set()
        """Names of components that the zygote has forked before, so that it need not import them again."""
        self._statuses: dict[int, asyncio.Future[int | None]] = {}
        """The exit status of each forked component, by pid; None if the zygote ended before the component."""

    async def fork(self, name: str, output: BinaryIO, kept: Sequence[int]) -> ProcessIdentity:
        """Start a component. Calls must not overlap or be cancelled: an answer does not name its request.

        Args:
            name: of the component.
            output: the file that its output goes to.
            kept: descriptors of the sockets of its predecessor, at most `kept_sockets.MOST_PASSED`.

        Raises:
            OSError: no process can be made, or the zygote does not answer.
        """
        if self._connection is None:
            self._start()
        assert self._connection is not None
        self._answer = asyncio.get_running_loop().create_future()
        timeout = self._settings.hang_seconds if name in self._imported else self._settings.start_seconds
        try:
            socket.send_fds(self._connection, [orjson.dumps({"start": name})], [output.fileno(), *kept])
            answer = await asyncio.wait_for(self._answer, timeout)
        except TimeoutError as error:
            self.close()
            raise OSError(errno.ETIMEDOUT, f"the zygote has not answered for {timeout:g} s") from error
        except OSError:
            self.close()
            raise
        if "errno" in answer:
            raise OSError(answer["errno"], os.strerror(answer["errno"]))
        self._imported.add(name)
        pid = answer["pid"]
        # A component that has already ended gets an identity for which `is_alive` returns False.
        return processes.identity_of(pid) or ProcessIdentity("", pid, 0)

    async def exit_status(self, identity: ProcessIdentity) -> int | None:
        """Return the exit status of a component that has ended (negative: by signal).

        The status is None if the component was adopted, or if the zygote ended before the component, or
        hangs. A zygote that hangs is closed.
        """
        status = self._statuses.get(identity.pid)
        if status is None:
            return None
        try:
            return await asyncio.wait_for(status, self._settings.hang_seconds)
        except TimeoutError:
            log.warning("the zygote of components has hung: killed")
            self.close()
            return None
        finally:
            del self._statuses[identity.pid]

    def close(self) -> None:
        """End the zygote; components run on."""
        if self._connection is not None:
            asyncio.get_running_loop().remove_reader(self._connection)
            self._connection.close()
            self._connection = None
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
            self._data_dir.identity(NAME).unlink(missing_ok=True)
        self._imported.clear()
        for status in self._statuses.values():
            if not status.done():
                status.set_result(None)

    def _start(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, "-m", "serving.app", "component-zygote", "--socket", str(theirs.fileno())]
        try:
            with theirs:
                self._process = subprocess.Popen(
                    [*command, *self._arguments],
                    stdin=subprocess.DEVNULL,
                    pass_fds=[theirs.fileno()],
                    start_new_session=True,
                    cwd="/",
                    env=self._environment,
                )
        except OSError:
            ours.close()
            raise
        ours.settimeout(0)
        self._connection = ours
        asyncio.get_running_loop().add_reader(ours, self._receive, ours)
        identity = processes.identity_of(self._process.pid)
        if identity is not None:
            run_files.write(self._data_dir.identity(NAME), processes.encoded(identity))

    def _receive(self, connection: socket.socket) -> None:
        try:
            message = connection.recv(_MESSAGE_BYTES)
        except BlockingIOError:
            return
        except OSError:
            message = b""
        if not message:
            self._note_end()
            return
        content = orjson.loads(message)
        loop = asyncio.get_running_loop()
        if "ended" in content:
            status = self._statuses.get(content["ended"])
            if status is not None and not status.done():
                status.set_result(content["status"])
            return
        if "pid" in content:
            self._statuses[content["pid"]] = loop.create_future()
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(content)

    def _note_end(self) -> None:
        log.warning("the zygote of components has ended; the next start begins another")
        self.close()
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(OSError(errno.ECONNRESET, "the zygote has ended"))

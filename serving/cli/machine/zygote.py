"""The zygote of components: imports each component before its first start, and forks it.

The zygote stays single-threaded, configures nothing (no logging, no signal handlers) and reads no object. It
ends when `up` ends; components run on, each in its own session.
"""

import argparse
import contextlib
import gc
import importlib
import json
import os
import select
import socket
import sys
from collections.abc import Sequence

from serving.cli.machine import component
from serving.cli.machine.components import DECLARATIONS
from serving.system import processes
from serving.system.network import kept_sockets

_MESSAGE_BYTES = 4096


def main(arguments: Sequence[str]) -> int:
    """Serve `component-zygote --socket FD ...` until `up` ends; return the exit code.

    Each fork, the process of a component, returns too, with the component's exit code.

    A request is a packet {"start": NAME} with the descriptors of the component's output and of its kept
    sockets; the answer is {"pid": PID} or {"errno": NUMBER}. The end of a component is a packet
    {"ended": PID, "status": STATUS}.
    """
    parser = argparse.ArgumentParser(prog="slipway component-zygote")
    parser.add_argument("--socket", type=int, required=True)
    options, rest = parser.parse_known_args(arguments)
    connection = socket.socket(fileno=options.socket)
    connection.set_inheritable(False)
    gc.disable()
    children: dict[int, int] = {}  # pidfd → pid
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # `up` has ended
        while True:
            ready = select.select([connection.fileno(), *children], [], [])[0]
            for pidfd, pid in list(children.items()):
                if pidfd in ready:
                    del children[pidfd]
                    os.close(pidfd)
                    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                    connection.send(json.dumps({"ended": pid, "status": status}).encode())
            if connection.fileno() not in ready:
                continue
            message, passed, _, _ = socket.recv_fds(connection, _MESSAGE_BYTES, 1 + kept_sockets.MOST_PASSED)
            if not message:
                return 0
            name = json.loads(message)["start"]
            _import(name)
            try:
                child = os.fork()
            except OSError as error:  # a full process table
                connection.send(json.dumps({"errno": error.errno}).encode())
            else:
                if child == 0:  # the component's process
                    for descriptor in (connection.detach(), *children):
                        os.close(descriptor)
                    output, *kept = passed
                    return _become(name, output, kept, rest)
                children[os.pidfd_open(child)] = child
                connection.send(json.dumps({"pid": child}).encode())
            for descriptor in passed:
                os.close(descriptor)
    return 0


def _import(name: str) -> None:
    """Import a component's modules. An import error is ignored here: the component logs it when it runs."""
    with contextlib.suppress(Exception):
        for module in DECLARATIONS[name].modules:
            importlib.import_module(module)
    gc.freeze()  # a collection writes to the pages of modules, which components would then no longer share


def _become(name: str, output: int, kept: Sequence[int], arguments: Sequence[str]) -> int:
    """Run a component in this fork of the zygote; return the exit code.

    Args:
        name: of the component.
        output: descriptor for its standard output and standard error.
        kept: descriptors of the kept sockets, which the last process of this component held.
        arguments: of its command line, after the name.
    """
    os.setsid()
    for descriptor in (1, 2):
        os.dup2(output, descriptor)
    os.close(output)
    processes.set_command_line([sys.executable, "-m", "serving.app", "component", name, *arguments])
    gc.enable()
    return component.main([name, *arguments], kept)

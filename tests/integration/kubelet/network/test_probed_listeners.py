"""A probe believes only the user of the container, also where that is the user of the node."""

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Iterator
from typing import Any, cast

import pytest

from serving.embedded.kubelet.container.exec_command import RunningContainer
from serving.embedded.kubelet.node import Node
from serving.embedded.kubelet.pod import probe_client
from serving.embedded.pod_spec.pod_identity import PodIdentity
from tests.rig.machine.addresses import own

ADDRESS, PORT = own(81), 9000
TARGET = RunningContainer(cast("Node", None), "uid", {"name": "main"}, PodIdentity(ADDRESS, None), 0)
OTHER_USER = 65_534
ACTIONS: list[dict[str, Any]] = [{"tcpSocket": {"port": PORT}}, {"httpGet": {"port": PORT}}]


@contextlib.contextmanager
def listening_as_other_user() -> Iterator[None]:
    """Listen at the address, and accept nothing, in a process of another user."""
    ready, is_ready = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setresuid(OTHER_USER, OTHER_USER, OTHER_USER)
            listener = socket.create_server((ADDRESS, PORT))
            os.write(is_ready, b"1")
            signal.pause()
            listener.close()
        finally:
            os._exit(0)
    try:
        os.close(is_ready)
        assert os.read(ready, 1) == b"1"
        yield
    finally:
        os.close(ready)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
@pytest.mark.parametrize("action", ACTIONS)
async def test_process_of_another_user_is_not_believed_when_the_container_has_the_nodes_user(
    action: dict[str, Any],
) -> None:
    with listening_as_other_user():
        answer = await probe_client.send(TARGET, action, 5.0)
    assert answer.address_taken
    assert answer.problem == (f"{ADDRESS}:{PORT} is taken by a process of user {OTHER_USER}, not of this Pod")


async def test_listener_is_compared_with_the_nodes_user_when_the_container_has_none_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    action = ACTIONS[0]
    async with await asyncio.start_server(lambda _, writer: writer.close(), ADDRESS, PORT):
        assert (await probe_client.send(TARGET, action, 5.0)).problem is None
        other = os.geteuid() + 1
        monkeypatch.setattr(os, "geteuid", lambda: other)
        assert (await probe_client.send(TARGET, action, 5.0)).address_taken

"""The requests of a candidate and of a leader to an API that is slow or busy."""

import asyncio
import logging

import pytest

from serving.kube.connection.client import Configuration, Kube
from serving.kube.election import LeaderElection, Timing
from tests.rig.control_plane.convergence import running, until
from tests.rig.machine.tcp_server import tcp_server


async def test_message_is_the_refusal_when_the_api_is_busy_for_longer_than_a_request(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def busy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        body = b'{"message": "too many requests"}'
        while True:
            await reader.readuntil(b"\r\n\r\n")
            head = f"HTTP/1.1 429 Too Many\r\nRetry-After: 5\r\nContent-Length: {len(body)}\r\n\r\n"
            writer.write(head.encode() + body)

    async def work() -> None:
        raise AssertionError("it leads")

    caplog.set_level(logging.INFO, "serving.kube.election")
    async with (
        tcp_server(busy) as port,
        Kube(Configuration(host=f"http://127.0.0.1:{port}"), field_manager="test") as kube,
    ):
        election = LeaderElection(kube, "default", "leader", "a", Timing(lease=3, renew=1.0, retry=0.01))
        async with running(election.run(work)):
            await until(lambda: bool(caplog.records))
    assert "cannot be acquired: too many requests" in caplog.records[0].getMessage()

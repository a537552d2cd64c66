"""The load process of `slipway demo`, and the program that reads its results."""

import asyncio
import itertools
import sys
from pathlib import Path

import gevent
import numpy as np
import orjson
import pytest

from serving import errors
from serving.cli.demo import load
from serving.cli.demo.clients import Clients
from tests.rig.machine.tcp_server import tcp_server

METADATA = {"name": "m", "inputs": [{"name": "x"}], "outputs": [{"name": "y"}]}


async def closes_after_a_post(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer a GET; close the connection after the head of a POST."""
    head = await reader.readuntil(b"\r\n\r\n")
    if head.startswith(b"GET"):
        body = orjson.dumps(METADATA)
        writer.write(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
        await writer.drain()


async def test_a_request_has_failed_when_its_connection_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load, "held_out", lambda: (np.zeros((3, 2)), np.zeros(3)))

    def two_rows(port: int) -> list[tuple[object, ...]]:
        try:
            return list(itertools.islice(load.requests(f"127.0.0.1:{port}/default/m", "m", seed=0), 2))
        finally:
            gevent.get_hub().destroy(destroy_loop=True)

    async with tcp_server(closes_after_a_post) as port:
        rows = await asyncio.to_thread(two_rows, port)
    assert [version for _, version, _, _ in rows] == [None, None]
    assert all("HTTPConnectionClosed" in str(reason) for _, _, _, reason in rows)


async def test_a_wait_for_results_ends_when_one_of_two_processes_dies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "program"
    program.write_text('#!/bin/sh\ncase "$*" in *dies*) exit 3;; esac\nexec cat\n')
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    clients = Clients()
    try:
        for name in ("lives", "dies"):
            await clients.add(name)
        with pytest.raises(errors.UserError, match="exit code 3"):
            await asyncio.wait_for(clients.until(1, lambda count: None), 3)
    finally:
        await clients.end()

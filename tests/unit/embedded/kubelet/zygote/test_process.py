"""The zygote's forks when they fail, and the end of a spare that gets no container."""

import os
import select
import socket
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from serving.embedded.kubelet.container import shim
from serving.embedded.kubelet.zygote import process
from serving.system.isolation import namespaces


def test_connection_does_not_end_the_pause_after_a_fork_that_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[tuple[list[object], float]] = []

    def fork() -> int:
        raise BlockingIOError

    def pause(readers: list[object], _writers: object, _errors: object, seconds: float) -> None:
        pauses.append((readers, seconds))
        if len(pauses) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(process, "threads", lambda: 1)
    monkeypatch.setattr(process, "_fork", fork)
    monkeypatch.setattr(os, "pidfd_open", lambda _: -1)
    monkeypatch.setattr(select, "select", pause)
    with socket.socket() as listener, pytest.raises(KeyboardInterrupt):
        process._fork_spares(listener)
    assert pauses == [([], process.REST_SECONDS)] * 3


def test_spare_removes_its_cgroups_when_it_is_dismissed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(namespaces, "die_with", lambda _: None)
    group = tmp_path / "77"
    group.mkdir()
    use_reader, use_writer = socket.socketpair()
    connection, client = socket.socketpair()
    client.shutdown(socket.SHUT_WR)
    listener = SimpleNamespace(accept=lambda: (connection, ""), close=lambda: None)
    waiting = subprocess.Popen(["cat"], stdin=subprocess.PIPE)  # until the shim closes its specification
    assert waiting.stdin is not None
    pending = SimpleNamespace(pid=waiting.pid, spec_writer=os.dup(waiting.stdin.fileno()))
    waiting.stdin.close()
    with use_reader, client, connection:
        process._become_shim(
            cast("socket.socket", listener),
            use_writer.detach(),
            cast("shim.PendingProcess", pending),
            [str(group)],
        )
    assert not group.exists()
    with pytest.raises(ProcessLookupError):
        os.kill(waiting.pid, 0)
    waiting.wait()  # the shim has waited for it, which this object does not know

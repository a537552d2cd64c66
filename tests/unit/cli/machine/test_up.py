import asyncio
import contextlib
import errno
import os
from pathlib import Path

import pytest

from serving import errors
from serving.cli.machine import up
from serving.data_dir import DataDir
from serving.embedded.kubelet.records import PodDirectory
from serving.embedded.supervisor import supervisor
from serving.router.envoy.process.envoy_process import EnvoyProcess, RunningEnvoy
from serving.settings import DEFAULTS
from serving.system import processes
from serving.system.files import run_files
from serving.system.processes import ProcessIdentity
from tests.rig.machine.tcp_server import tcp_server


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
@pytest.mark.parametrize("status", ["404 Not Found", "503 Service Unavailable"])
async def test_gateway_serves_once_it_knows_the_services(status: str, host: str) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(f"HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n".encode())
        await writer.drain()

    async with tcp_server(answer, host) as port:
        assert await up._serves(host, port) == (status == "404 Not Found")


async def test_gateway_does_not_serve_when_its_port_is_closed_or_never_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(up, "GATEWAY_SECONDS", 0.1)

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with tcp_server(silent) as port:
        assert not await up._serves("127.0.0.1", port)
    assert not await up._serves("127.0.0.1", port)


async def test_up_is_not_ready_yet_when_proc_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def holds(*_: object) -> bool:
        return True

    def running(_: EnvoyProcess) -> RunningEnvoy:
        raise OSError(errno.ENFILE, os.strerror(errno.ENFILE))

    monkeypatch.setattr(up, "answers", holds)
    monkeypatch.setattr(up, "_serves", holds)
    monkeypatch.setattr(EnvoyProcess, "running", running)
    where = DataDir(tmp_path)
    assert not await up._is_ready(where, EnvoyProcess(where, DEFAULTS.gateway), DEFAULTS)


def test_down_waits_as_long_as_up_may_stop_when_a_pod_has_a_long_grace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = DataDir(tmp_path)
    run_files.write(where.identity("up"), processes.encoded(processes.own_identity()))
    for uid, grace in (("a", 600), ("b", 30)):
        PodDirectory(where.pods / uid).save({"namespace": "default", "name": uid, "grace": grace})
    for uid, is_running in (("a", True), ("ended", False)):
        run = PodDirectory(where.pods / uid).run("main", 0).path
        run.mkdir(parents=True)
        (run / "launch.json").write_text("{}")
        if not is_running:
            (run / "exit.json").write_text('{"lost": "the machine was restarted"}')
    PodDirectory(where.pods / "ended").save({"namespace": "default", "name": "ended", "grace": 9000})
    waited: list[float] = []

    async def has_ended_within(identity: ProcessIdentity, seconds: float) -> bool:
        waited.append(seconds)
        return True

    monkeypatch.setattr(up, "has_ended_within", has_ended_within)
    monkeypatch.setattr(processes, "send_signal", lambda identity, number: True)
    up.down(tmp_path)
    settings = DEFAULTS
    assert waited == [3 * settings.supervisor.stop_seconds + settings.gateway.drain_seconds + 600]


@pytest.mark.parametrize("command", ["up", "down"])
def test_down_waits_for_another_down_alone_when_its_up_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    where = DataDir(tmp_path)
    run_files.write(where.identity("up"), processes.encoded(ProcessIdentity("boot", 1, 1)))

    async def has_ended_within(_: ProcessIdentity, seconds: float) -> bool:
        other.enter_context(supervisor.owned(where, command=command))
        return True

    monkeypatch.setattr(up, "_longest_stop", lambda _: 0.3)
    monkeypatch.setattr(up, "has_ended_within", has_ended_within)
    monkeypatch.setattr(processes, "send_signal", lambda identity, number: True)
    with contextlib.ExitStack() as other:
        if command == "down":
            with pytest.raises(errors.UserError, match="already runs"):
                up.down(tmp_path)
        else:
            up.down(tmp_path)
            assert capsys.readouterr().out.endswith("Stopped.\n")


def test_up_is_refused_when_the_path_of_its_directory_is_too_long_for_sockets() -> None:
    up._refuse_long_path(DataDir(Path("/" + "d" * 76)))
    with pytest.raises(errors.UserError, match=r"--data-dir /d+: must be at most 77 bytes long.*, got 78"):
        up._refuse_long_path(DataDir(Path("/" + "d" * 77)))

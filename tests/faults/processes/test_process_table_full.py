"""Components that are killed while no process can be made are started as soon as one can."""

import signal
from pathlib import Path

from serving.data_dir import DataDir
from serving.embedded.supervisor import zygote
from serving.embedded.supervisor.supervisor import COMPONENTS
from serving.router.envoy.process.envoy_process import EnvoyProcess
from serving.settings import DEFAULTS
from serving.system import processes
from tests.faults.processes.test_up_killed import Up, running, until
from tests.rig.machine import process_table


def starters(up: Up) -> list[processes.ProcessIdentity]:
    """Return `up` and the zygote of its components."""
    record = processes.read_running(up.data_dir.identity(zygote.NAME))
    itself = processes.identity_of(up.process.pid)
    assert record is not None
    assert itself is not None
    return [itself, record[0]]


def test_up_outlives_a_full_process_table_and_starts_what_has_ended(tmp_path: Path) -> None:
    where = DataDir(tmp_path / "data")
    up = Up(where, "--port", "0", "--gateway-port", "0").ready()
    try:
        before = running(where)
        with process_table.full(starters(up)):
            processes.send_signal(before["controllers"], signal.SIGKILL)
            until(lambda: up.text().count("controllers cannot be started") > 1, "up has tried twice")
        until(lambda: set(running(where)) == set(COMPONENTS), "the component runs again", 20)
        after = running(where)
        assert {name for name in COMPONENTS if after[name] != before[name]} == {"controllers"}
    finally:
        up.process.terminate()
        assert up.process.wait(60) == 0, up.text()


def test_envoy_that_is_killed_meanwhile_runs_again(tmp_path: Path) -> None:
    where = DataDir(tmp_path / "data")
    up = Up(where, "--port", "0", "--gateway-port", "0").ready()
    try:
        envoy = EnvoyProcess(where, DEFAULTS.gateway)
        killed = envoy.running()
        assert killed is not None
        with process_table.full([*starters(up), running(where)["gateway"]]):
            processes.send_signal(killed.process, signal.SIGKILL)
            log = where.logs / "gateway.log"
            # gRPC ends its process when it can make no thread; then `up` cannot start another gateway.
            until(
                lambda: "Envoy cannot start" in log.read_text() or "gateway cannot be started" in up.text(),
                "the gateway or up has tried",
            )
            assert envoy.running() is None
        until(lambda: envoy.running() is not None, "Envoy runs again", 20)
        until(lambda: set(running(where)) == set(COMPONENTS), "every component runs", 20)
    finally:
        up.process.terminate()
        assert up.process.wait(60) == 0, up.text()

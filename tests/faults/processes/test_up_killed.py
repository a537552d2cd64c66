"""`slipway up` and its components under SIGKILL: components keep running, and the next `up` adopts them."""

import json
import os
import signal
import stat
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from serving.data_dir import DataDir
from serving.embedded.kubelet import shutdown
from serving.embedded.supervisor import zygote
from serving.embedded.supervisor.supervisor import COMPONENTS
from serving.router.envoy.process.envoy_process import EnvoyProcess
from serving.settings import DEFAULTS
from serving.system import processes

PAGES = {"gateway", "activator", "autoscaler", "node"}


def until(holds: Callable[[], bool], expected: str, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"not within {seconds} s: {expected}"
        time.sleep(0.05)


class Up:
    """One `slipway up` as a process."""

    def __init__(self, data_dir: DataDir, *options: str, umask: int = -1) -> None:
        self.data_dir = data_dir
        self.output = data_dir.root.parent / f"up-{time.monotonic_ns()}.log"
        with self.output.open("wb") as sink:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "serving.app", "up", "--data-dir", str(data_dir.root), *options],
                stdout=sink,
                stderr=sink,
                start_new_session=True,
                umask=umask,
            )

    def text(self) -> str:
        return self.output.read_text()

    def ready(self) -> "Up":
        until(lambda: "Slipway is up" in self.text() or self.process.poll() is not None, "up is ready")
        assert self.process.poll() is None, self.text()
        return self


def running(data_dir: DataDir) -> dict[str, processes.ProcessIdentity]:
    identities = {name: processes.read_identity(data_dir.identity(name)) for name in COMPONENTS}
    return {name: entry[0] for name, entry in identities.items() if entry and processes.is_alive(entry[0])}


def slipway(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "serving.app", *arguments],
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )


def targets(data_dir: DataDir) -> dict[str, str]:
    """Return component → URL of its metrics page, from the targets file for Prometheus."""
    if not data_dir.prometheus_targets.exists():
        return {}
    return {
        group["labels"]["component"]: f"http://{target}{group['labels']['__metrics_path__']}"
        for group in json.loads(data_dir.prometheus_targets.read_bytes())
        for target in group["targets"]
    }


def families(url: str) -> list[Metric]:
    with urllib.request.urlopen(url, timeout=10) as response:
        assert response.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        return list(text_string_to_metric_families(response.read().decode()))


def end(data_dir: DataDir) -> None:
    """Stop what a test has left running."""
    is_up = processes.read_running(data_dir.identity("up")) is not None
    if is_up or running(data_dir) or shutdown.running(data_dir):
        slipway("down", "--data-dir", str(data_dir.root))
    assert not running(data_dir), "processes are still running"


@pytest.fixture
def data_dir(tmp_path: Path) -> Iterator[DataDir]:
    directory = DataDir(tmp_path / "data")
    yield directory
    end(directory)


@pytest.fixture(scope="module")
def shared_data_dir(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DataDir]:
    directory = DataDir(tmp_path_factory.mktemp("shared") / "data")
    yield directory
    end(directory)


@pytest.fixture
def first_up(shared_data_dir: DataDir) -> Up:
    """The `up` that another test has left running, or a new one."""
    if not ups or ups[-1].process.poll() is not None:
        ups.append(Up(shared_data_dir, "--port", "0", "--gateway-port", "0").ready())
    return ups[-1]


ups: list[Up] = []
"""Those of `first_up`."""


def test_killed_component_restarts_soon_on_the_same_port(first_up: Up) -> None:
    data_dir = first_up.data_dir
    old = running(data_dir)
    assert processes.send_signal(old["api"], signal.SIGKILL)
    until(lambda: running(data_dir).get("api", old["api"]) != old["api"], "the API is restarted", 10)
    until(
        lambda: slipway("get", "ns", "--data-dir", str(data_dir.root)).returncode == 0, "the API answers", 30
    )
    new = running(data_dir)
    assert {name for name in old if old[name] != new.get(name)} == {"api"}
    assert first_up.process.poll() is None


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_killed_component_restarts_when_the_zygote_of_components_ends_or_hangs(
    first_up: Up, number: signal.Signals
) -> None:
    data_dir = first_up.data_dir
    old = running(data_dir)
    record = processes.read_running(data_dir.identity(zygote.NAME))
    assert record is not None
    assert processes.send_signal(record[0], number)
    assert processes.send_signal(old["activator"], signal.SIGKILL)
    until(lambda: running(data_dir).get("activator", old["activator"]) != old["activator"], "it runs", 30)
    assert not processes.is_alive(record[0])
    assert {name for name in old if old[name] != running(data_dir).get(name)} == {"activator"}
    assert first_up.process.poll() is None


def test_exit_status_is_logged_when_the_zygote_of_components_answers_late(first_up: Up) -> None:
    data_dir = first_up.data_dir
    old = running(data_dir)
    record = processes.read_running(data_dir.identity(zygote.NAME))
    assert record is not None
    logged = (data_dir.logs / "up.log").read_text().count("activator ended (-9)")
    assert processes.send_signal(record[0], signal.SIGSTOP)
    assert processes.send_signal(old["activator"], signal.SIGKILL)
    time.sleep(2)  # the delay that is tested: less than `hang_seconds`
    assert processes.send_signal(record[0], signal.SIGCONT)
    until(lambda: running(data_dir).get("activator", old["activator"]) != old["activator"], "it runs", 30)
    assert (data_dir.logs / "up.log").read_text().count("activator ended (-9)") == logged + 1


def test_second_up_is_refused_and_a_killed_one_is_taken_over(first_up: Up) -> None:
    data_dir = first_up.data_dir
    adopted = running(data_dir)
    assert set(adopted) == set(COMPONENTS)

    second_up = slipway("up", "--data-dir", str(data_dir.root))
    assert second_up.returncode == 1
    assert "already runs" in second_up.stderr
    assert str(first_up.process.pid) in second_up.stderr

    first_up.process.kill()
    first_up.process.wait()
    third_up = Up(data_dir).ready()
    assert "Adopted" in third_up.text()
    assert running(data_dir) == adopted, "a component was restarted"

    third_up.process.send_signal(signal.SIGTERM)
    assert third_up.process.wait(60) == 0, third_up.text()
    assert not running(data_dir)
    assert processes.read_running(data_dir.identity(zygote.NAME)) is None


def test_down_stops_the_components_of_a_killed_up(data_dir: DataDir) -> None:
    up = Up(data_dir, "--port", "0", "--gateway-port", "0").ready()
    until(lambda: set(targets(data_dir)) == PAGES, "the targets file has every page", 20)
    up.process.kill()
    up.process.wait()
    assert running(data_dir)
    assert set(targets(data_dir)) == PAGES
    for component, url in targets(data_dir).items():
        assert len(families(url)) > 1, component
    completed = slipway("down", "--data-dir", str(data_dir.root))
    assert completed.returncode == 0, completed.stderr
    assert not running(data_dir)
    assert not data_dir.prometheus_targets.exists()


STUBBORN = """
apiVersion: v1
kind: Pod
metadata: {name: stubborn, namespace: default}
spec:
  terminationGracePeriodSeconds: 12
  containers:
  - name: main
    image: slipway.dev/runtimes/python
    command: [sh, -c, "trap '' TERM; while true; do sleep 1; done"]
"""


@pytest.mark.parametrize("end_up", ["forced", "killed"])
def test_down_stops_the_replicas_of_an_up_that_is_forced_or_killed_meanwhile(
    data_dir: DataDir, tmp_path: Path, end_up: str
) -> None:
    up = Up(data_dir, "--port", "0", "--gateway-port", "0").ready()
    manifest = tmp_path / "pod.yaml"
    manifest.write_text(STUBBORN)
    assert slipway("apply", "-f", str(manifest), "--data-dir", str(data_dir.root)).returncode == 0
    until(lambda: bool(shutdown.running(data_dir)), "the Pod runs")
    command = [sys.executable, "-m", "serving.app", "down", "--data-dir", str(data_dir.root)]
    first_down = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    until(lambda: "node" not in running(data_dir), "up waits for the Pod")
    if end_up == "forced":
        assert slipway(*command[3:]).returncode == 0
    else:
        up.process.kill()
    assert first_down.wait(90) == 0
    assert up.process.wait(0) != 0
    assert shutdown.running(data_dir) == []
    assert running(data_dir) == {}
    assert EnvoyProcess(data_dir, DEFAULTS.gateway).running() is None


def test_up_that_cannot_start_leaves_running_what_it_has_adopted(data_dir: DataDir) -> None:
    up = Up(data_dir, "--port", "0", "--gateway-port", "0").ready()
    envoy = EnvoyProcess(data_dir, DEFAULTS.gateway).running()
    before = running(data_dir)
    up.process.kill()
    up.process.wait()
    for name in ("api", "controllers"):
        assert processes.send_signal(before.pop(name), signal.SIGKILL)
    until(lambda: running(data_dir) == before, "both have ended", 10)
    for database in data_dir.root.glob("state.db*"):
        database.write_bytes(b"damaged" * 1000)

    failed = slipway("up", "--data-dir", str(data_dir.root))
    assert failed.returncode == 1
    assert running(data_dir) == before
    assert envoy is not None
    assert EnvoyProcess(data_dir, DEFAULTS.gateway).running() == envoy
    assert "state.db" in failed.stderr
    assert f"slipway down --data-dir {data_dir.root}" in failed.stderr
    assert slipway("down", "--data-dir", str(data_dir.root)).returncode == 0
    assert not running(data_dir)
    assert EnvoyProcess(data_dir, DEFAULTS.gateway).running() is None


def test_up_under_a_umask_of_0_lets_no_other_user_write(data_dir: DataDir) -> None:
    up = Up(data_dir, "--port", "0", "--gateway-port", "0", umask=0).ready()
    folders = [path for path in data_dir.root.rglob("*") if path.is_dir() and not path.is_symlink()]
    assert data_dir.logs in folders
    assert [path for path in folders if path.stat().st_mode & stat.S_IWOTH] == []
    up.process.send_signal(signal.SIGTERM)
    assert up.process.wait(60) == 0, up.text()


def test_port_in_use_is_reported_with_its_option(data_dir: DataDir) -> None:
    import socket

    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        for option, other_option in (("--port", "--gateway-port"), ("--gateway-port", "--port")):
            completed = slipway("up", "--data-dir", str(data_dir.root), option, str(port), other_option, "0")
            assert completed.returncode == 1, completed.stdout
            assert str(port) in completed.stderr
            assert option in completed.stderr


def test_reused_pid_is_never_signalled(data_dir: DataDir) -> None:
    own_identity = processes.own_identity()
    stranger = processes.ProcessIdentity(own_identity.boot_id, os.getpid(), own_identity.start_time - 1)
    assert not processes.is_alive(stranger)
    assert not processes.send_signal(stranger, signal.SIGKILL)
    other_boot = processes.ProcessIdentity("another", os.getpid(), own_identity.start_time)
    assert not processes.send_signal(other_boot, signal.SIGKILL)

"""`slipway up` and its components under SIGKILL: what runs keeps running, and the next `up` takes it over."""

import json
import os
import signal
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
from serving.embedded.supervisor.supervisor import COMPONENTS
from serving.system import processes

PAGES = {"gateway", "activator", "autoscaler", "node"}


def until(holds: Callable[[], bool], what: str, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.05)


class Up:
    """One `slipway up` as a process."""

    def __init__(self, where: DataDir, *options: str) -> None:
        self.where = where
        self.output = where.root.parent / f"up-{time.monotonic_ns()}.log"
        with self.output.open("wb") as sink:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "serving.app", "up", "--data-dir", str(where.root), *options],
                stdout=sink, stderr=sink, start_new_session=True,
            )  # fmt: skip

    def said(self) -> str:
        return self.output.read_text()

    def ready(self) -> "Up":
        until(lambda: "Slipway is up" in self.said() or self.process.poll() is not None, "up is ready")
        assert self.process.poll() is None, self.said()
        return self


def running(where: DataDir) -> dict[str, processes.ProcessIdentity]:
    found = {name: processes.read_identity(where.identity(name)) for name in COMPONENTS}
    return {name: entry[0] for name, entry in found.items() if entry and processes.is_alive(entry[0])}


def slipway(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "serving.app", *arguments],
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )


def targets(where: DataDir) -> dict[str, str]:
    """Return the URL of each component's page, as a Prometheus finds them."""
    if not where.prometheus_targets.exists():
        return {}
    return {
        group["labels"]["component"]: f"http://{target}{group['labels']['__metrics_path__']}"
        for group in json.loads(where.prometheus_targets.read_bytes())
        for target in group["targets"]
    }


def families(url: str) -> list[Metric]:
    with urllib.request.urlopen(url, timeout=10) as response:
        assert response.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        return list(text_string_to_metric_families(response.read().decode()))


@pytest.fixture
def where(tmp_path: Path) -> Iterator[DataDir]:
    place = DataDir(tmp_path / "data")
    yield place
    if place.root.exists():
        slipway("down", "--data-dir", str(place.root))
    assert not running(place), "something was left running"


def test_a_second_up_is_refused_and_a_killed_one_is_taken_over(where: DataDir) -> None:
    first = Up(where, "--port", "0", "--gateway-port", "0").ready()
    before = running(where)
    assert set(before) == set(COMPONENTS)

    second = slipway("up", "--data-dir", str(where.root))
    assert second.returncode == 1
    assert "already runs" in second.stderr
    assert str(first.process.pid) in second.stderr

    first.process.kill()
    first.process.wait()
    third = Up(where).ready()
    assert "Adopted" in third.said()
    assert running(where) == before, "adoption restarts nothing"

    third.process.send_signal(signal.SIGTERM)
    assert third.process.wait(60) == 0, third.said()
    assert not running(where)


def test_a_killed_component_runs_again_soon_and_on_the_same_port(where: DataDir) -> None:
    up = Up(where, "--port", "0", "--gateway-port", "0").ready()
    before = running(where)
    assert processes.send_signal(before["api"], signal.SIGKILL)
    until(lambda: running(where).get("api", before["api"]) != before["api"], "the API is started again", 10)
    until(lambda: slipway("get", "ns", "--data-dir", str(where.root)).returncode == 0, "the API answers", 30)
    after = running(where)
    assert {name for name in before if before[name] != after.get(name)} == {"api"}
    assert up.process.poll() is None


def test_down_stops_what_a_killed_up_left(where: DataDir) -> None:
    up = Up(where, "--port", "0", "--gateway-port", "0").ready()
    until(lambda: set(targets(where)) == PAGES, "a Prometheus finds every page", 20)
    up.process.kill()
    up.process.wait()
    assert running(where)
    assert set(targets(where)) == PAGES
    for component, url in targets(where).items():
        assert len(families(url)) > 1, component
    done = slipway("down", "--data-dir", str(where.root))
    assert done.returncode == 0, done.stderr
    assert not running(where)
    assert not where.prometheus_targets.exists()


def test_a_port_in_use_is_named_with_its_option(where: DataDir) -> None:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        for option, other in (("--port", "--gateway-port"), ("--gateway-port", "--port")):
            done = slipway("up", "--data-dir", str(where.root), option, str(port), other, "0")
            assert done.returncode == 1, done.stdout
            assert str(port) in done.stderr
            assert option in done.stderr


def test_a_pid_that_was_used_again_is_never_signalled(where: DataDir) -> None:
    me = processes.own_identity()
    stranger = processes.ProcessIdentity(me.boot_id, os.getpid(), me.start_time - 1)
    assert not processes.is_alive(stranger)
    assert not processes.send_signal(stranger, signal.SIGKILL)
    other_boot = processes.ProcessIdentity("another", os.getpid(), me.start_time)
    assert not processes.send_signal(other_boot, signal.SIGKILL)

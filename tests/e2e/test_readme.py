"""The commands of the README's tour run as written, in order, on one `slipway up`."""

import asyncio
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import cycle, islice
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, TypeVar

import orjson
import pytest

from autoscaler.simulate.workloads import service
from serving.cli.demo.stack import Stack
from serving.cli.exits import Exit
from serving.data_dir import DataDir
from serving.kube import connect
from serving.objects import Object
from serving.resources import kinds, names
from tests.objects.models.foreign_models import run_directory
from tests.rig.servers.registry_server import RegistryServer

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(240),
    pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed (Debian package curl)"),
]

Holds = Callable[[list[Object]], bool]
Value = TypeVar("Value")

ROOT = Path(__file__).parents[2]
SECONDS = 90
"""Longest wait for a state, and for the end of a command."""
POLL_SECONDS = 0.1
NOT_RUN = (
    ". .venv/bin/activate",  # the commands run with the interpreter of the test
    "slipway up",  # the test starts it, on free ports
)
APPLY = "slipway apply -f manifests/samples/inference.yaml"
REQUEST, DESCRIBE_POD, PUSH = "curl -si ", "slipway describe pod ", "slipway model push "
STATUS, RECORD = "slipway autoscale status -w ", "slipway autoscale record "
SIMULATE = "slipway autoscale simulate "
SHORTER: Mapping[str, Mapping[str, str]] = {
    "on-demand.yaml": {"idleSeconds: 60": "idleSeconds: 1"},
    "tuning.yaml": {
        "windowSeconds: 5, warmupSeconds: 2": 'levels: ["2"], windowSeconds: 1, warmupSeconds: 0',
        "maxNumTrials: 20": "maxNumTrials: 1",
        # Other tests share the cores, and without a spec that meets the constraints nothing can be applied.
        "atMost: 100ms": "atMost: 60s",
    },
}
"""Texts of samples that the test replaces: as written they need a minute of silence and ten of trials."""
SHOWS: Mapping[str, str] = {
    REQUEST: r"HTTP/1.1 200 OK\r\n(.*\n)+x-slipway-arm: (stable|canary)",
    "curl -s ": "^200 in ",
    DESCRIBE_POD: "train-digits-logistic",
    "slipway describe inference ": "Last start from zero",
    STATUS: "digits-stable: desired ",
    "slipway autoscale explain ": "The binding rule: ",
    RECORD: "wrote load.csv",
    SIMULATE: "wrote load.html",
    PUSH: " as forest",
    "slipway model import ": " ready: ",
    "slipway tune -f ": "Succeeded: Recommended: ",
    "slipway tune report ": "wrote digits.html",
    "slipway tune apply ": "inference.slipway.dev/digits unchanged: ",  # the one trial is of the current spec
}
"""Pattern in the output of a command, by the beginning of the command; an exit code shows less."""


def commands(text: str) -> Iterator[str]:
    """Return the commands of the console blocks of the tour, with their comments and further lines."""
    tour = text.partition("## A tour")[2].partition("\n## ")[0]
    for block in re.findall(r"```console\n(.*?)```", tour, re.DOTALL):
        yield from re.findall(r"^\$ ((?:.*\\\n)*.*)$", block, re.MULTILINE)


def clone_in(directory: Path) -> Path:
    """Return a directory with the samples, texts of some replaced, and the MLflow run of the tour."""
    clone = directory / "clone"
    samples = clone / "manifests" / "samples"
    shutil.copytree(ROOT / "manifests" / "samples", samples)
    for name, texts in SHORTER.items():
        sample = (samples / name).read_text()
        assert [text for text in texts if text not in sample] == []
        for text, shorter in texts.items():
            sample = sample.replace(text, shorter)
        (samples / name).write_text(sample)
    run_directory(directory).rename(clone / "my-mlflow-run")
    return clone


class Shell:
    """Runs commands in a clone, with `slipway` on the path and the user's data below `home`."""

    def __init__(self, clone: Path, home: Path) -> None:
        self.actual: dict[str, str] = {}
        """Addresses and names of this run, by those that the README has."""
        self._clone = clone
        program = home / "bin" / "slipway"
        program.parent.mkdir(parents=True)
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m serving.app "$@"\n')
        program.chmod(0o755)
        inherited = os.environ.keys() - {"KUBECONFIG", "SLIPWAY_DATA_DIR"}
        self._environment = {name: os.environ[name] for name in inherited} | {
            "PATH": os.pathsep.join([str(program.parent), os.environ["PATH"]]),
            "PYTHONPATH": str(ROOT),
            "XDG_DATA_HOME": str(home),
            "DOCKER_CONFIG": str(home),
        }

    def run(self, command: str, ctrl_c: Callable[[str], bool] | None = None) -> tuple[int, str]:
        """Return the exit code and the output of a command; Ctrl-C ends it once `ctrl_c(output)`."""
        for text, actual in self.actual.items():
            command = command.replace(text, actual)
        deadline = time.monotonic() + SECONDS
        with TemporaryFile() as file, self._started(command, file) as process:
            while process.poll() is None:
                output = _read(file)
                assert time.monotonic() < deadline, (command, output)
                if ctrl_c is not None and ctrl_c(output):
                    os.killpg(process.pid, signal.SIGINT)
                    ctrl_c = None
                with suppress(subprocess.TimeoutExpired):
                    process.wait(POLL_SECONDS)
            return process.returncode, _read(file)

    @contextmanager
    def _started(self, command: str, output: IO[bytes]) -> Iterator[subprocess.Popen[bytes]]:
        process = subprocess.Popen(
            ["bash", "-c", command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=self._clone,
            env=self._environment,
            start_new_session=True,
        )
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def _read(file: IO[bytes]) -> str:
    """Return the content; the process that writes it shares the position, which does not move."""
    return os.pread(file.fileno(), 1 << 20, 0).decode()


class Recording:
    """The trace that `autoscale record` writes."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def has_requests(self) -> bool:
        return any(float(count) > 0 for _, count in self._rows())

    def lengthen(self) -> None:
        """Repeat its seconds to the minute that a simulation needs at least."""
        rows = self._rows()
        first, counts = int(rows[0][0]), cycle(count for _, count in rows)
        lines = [f"{first + i},{count}\n" for i, count in enumerate(islice(counts, service.SHORTEST))]
        self._path.write_text("".join(["time_s,requests\n", *lines]))

    def _rows(self) -> list[list[str]]:
        text = self._path.read_text() if self._path.exists() else ""
        return [line.split(",") for line in text.splitlines()[1:]]


async def wait(kind: kinds.Kind, kubeconfig: Path, holds: Holds) -> list[Object]:
    deadline = time.monotonic() + SECONDS
    async with await connect(kubeconfig, component="test") as kube:
        while not holds(items := (await kube.list(kind, "default")).items):
            assert time.monotonic() < deadline, items
            await asyncio.sleep(0.2)
    return items


def versions_are_ready(items: list[Object]) -> bool:
    phases = [item.get("status", {}).get("phase") for item in items]
    return phases == ["Ready", "Ready"]


def inferences_are_ready(items: list[Object]) -> bool:
    conditions = [c for item in items for c in item.get("status", {}).get("conditions", [])]
    return any((c["type"], c["status"]) == ("Ready", "True") for c in conditions)


def predictors_are_at_zero(items: list[Object]) -> bool:
    arms = [arm for item in items for arm in item["status"]["predictors"]]
    return [arm.get("reason") for arm in arms] == ["ScaledToZero", "ScaledToZero"]


def a_start_is_known(items: list[Object]) -> bool:
    return any("lastWake" in demand for item in items for demand in item.get("status", {}).get("demand", []))


WAITS: Mapping[str, tuple[kinds.Kind, Holds]] = {
    "slipway get jobs,mv ": (kinds.MODEL_VERSION, versions_are_ready),
    REQUEST: (kinds.INFERENCE, inferences_are_ready),
    "slipway get  ": (kinds.INFERENCE, predictors_are_at_zero),
    "slipway describe inference ": (kinds.AUTOSCALER, a_start_is_known),
}
"""States that the reader of the tour waits for, by the beginning of the next command."""


def by_beginning(table: Mapping[str, Value], command: str) -> Value | None:
    return next((value for beginning, value in table.items() if command.startswith(beginning)), None)


async def pod_name(kubeconfig: Path) -> str:
    """Return the name of a Pod of the predictor whose Pod the tour describes."""
    pods = [pod["metadata"] for pod in await wait(kinds.POD, kubeconfig, bool)]
    return next(
        str(pod["name"]) for pod in pods if pod.get("labels", {}).get(names.PREDICTOR_LABEL) == "stable"
    )


async def test_commands_of_the_tour_run_as_written(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    written = list(commands((ROOT / "README.md").read_text()))
    beginnings = (*NOT_RUN, *SHOWS, *WAITS, APPLY)
    assert [text for text in beginnings if not any(c.startswith(text) for c in written)] == []
    home = tmp_path_factory.mktemp("home")  # a short path: `up` has Unix sockets in it
    clone, where = clone_in(tmp_path), DataDir(home / "slipway")
    shell, recording = Shell(clone, home), Recording(clone / "load.csv")
    (request,) = (command for command in written if command.startswith(REQUEST))

    def is_shown(output: str) -> bool:
        return re.search(SHOWS[STATUS], output) is not None

    def is_recorded(_output: str) -> bool:
        shell.run(request)
        return recording.has_requests()

    ctrl_c = {STATUS: is_shown, RECORD: is_recorded}
    registry = RegistryServer(tmp_path / "registry").start() if shutil.which("docker-registry") else None
    not_run = NOT_RUN if registry else (*NOT_RUN, PUSH)
    stack = Stack(where)
    codes: dict[str, list[int]] = {}
    try:
        await stack.start()
        gateway = orjson.loads(where.ports.read_bytes())["gateway"]
        shell.actual |= {"127.0.0.1:8080": f"127.0.0.1:{gateway}"}
        shell.actual |= {"registry.example": registry.host} if registry else {}
        for command in written:
            if command.startswith(not_run):
                continue
            if awaited := by_beginning(WAITS, command):
                await wait(awaited[0], where.kubeconfig, awaited[1])
            if command.startswith(DESCRIBE_POD):
                shell.actual[command.removeprefix(DESCRIBE_POD)] = await pod_name(where.kubeconfig)
            if command.startswith(SIMULATE):
                recording.lengthen()
            code, output = shell.run(command, by_beginning(ctrl_c, command))
            codes.setdefault(command, []).append(code)
            assert "Traceback" not in output
            assert code in (0, Exit.CONFLICT, Exit.INTERRUPTED), (command, output)
            assert re.search(by_beginning(SHOWS, command) or "", output), (command, output)
    finally:
        await stack.end()
        if registry:
            registry.stop()
    assert codes.pop(APPLY) == [0, Exit.CONFLICT]  # the second time, `traffic set` owns the weights
    interrupted = {command for command, exit_codes in codes.items() if exit_codes == [Exit.INTERRUPTED]}
    assert interrupted == {command for command in written if command.startswith(STATUS)}
    assert {code for command in codes.keys() - interrupted for code in codes[command]} == {0}
    if registry is None:
        pytest.skip(f"all but `{PUSH.strip()}` ran: docker-registry is not installed")

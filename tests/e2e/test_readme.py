"""The commands of the README's tour run as written, in order, on one `slipway up`."""

import asyncio
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from serving.cli.demo.stack import Stack
from serving.data_dir import DataDir
from serving.kube import connect
from serving.objects import Object
from serving.resources import kinds

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

ROOT = Path(__file__).parents[2]
SECONDS = 90
NOT_RUN = (
    "slipway up",  # the test starts it, on free ports
    "slipway describe pod",  # the name differs in every run
    "slipway apply -f manifests/samples/on-demand.yaml",  # takes a minute of silence
    "slipway autoscale status -w",  # until Ctrl-C
    "slipway autoscale record",  # until Ctrl-C
    "slipway autoscale simulate",  # reads the recording
    "slipway model push",  # needs a registry
    "slipway model import",  # needs an MLflow run
    "slipway tune",  # takes ten minutes
)


def commands(text: str) -> Iterator[str]:
    """Return the `slipway` commands of the console blocks of the tour, without comments."""
    tour = text.partition("## A tour")[2].partition("\n## ")[0]
    for block in re.findall(r"```console\n(.*?)```", tour, re.DOTALL):
        for line in re.findall(r"^\$ (slipway .*)$", block, re.MULTILINE):
            yield line.partition("  #")[0].strip()


def run(command: str, kubeconfig: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "serving.app", *command.split()[1:]],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={**os.environ, "KUBECONFIG": str(kubeconfig)},
    )


async def wait(kind: kinds.Kind, kubeconfig: Path, holds: Callable[[list[Object]], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    async with await connect(kubeconfig, component="test") as kube:
        while not holds(items := (await kube.list(kind, "default")).items):
            assert time.monotonic() < deadline, items
            await asyncio.sleep(0.2)


def versions_are_ready(items: list[Object]) -> bool:
    phases = [item.get("status", {}).get("phase") for item in items]
    return phases == ["Ready", "Ready"]


def inferences_are_ready(items: list[Object]) -> bool:
    conditions = [c for item in items for c in item.get("status", {}).get("conditions", [])]
    return any((c["type"], c["status"]) == ("Ready", "True") for c in conditions)


async def test_commands_of_the_tour_run_as_written(tmp_path: Path) -> None:
    written = list(commands((ROOT / "README.md").read_text()))
    assert [skipped for skipped in NOT_RUN if not any(c.startswith(skipped) for c in written)] == []
    stack = Stack(DataDir(tmp_path / "data"))
    await stack.start()
    kubeconfig = stack.where.kubeconfig
    codes: dict[str, list[int]] = {}
    try:
        for command in written:
            if command.startswith(NOT_RUN):
                continue
            if "inference.yaml" in command:
                await wait(kinds.MODEL_VERSION, kubeconfig, versions_are_ready)
            if command.startswith("slipway traffic set"):
                await wait(kinds.INFERENCE, kubeconfig, inferences_are_ready)
            completed = run(command, kubeconfig)
            codes.setdefault(command, []).append(completed.returncode)
            assert "Traceback" not in completed.stderr
            assert completed.returncode in (0, 4), (command, completed.stdout, completed.stderr)
    finally:
        await stack.end()
    conflict = "slipway apply -f manifests/samples/inference.yaml"
    assert codes.pop(conflict) == [0, 4]  # the second time, `traffic set` owns the weights
    assert {code for exit_codes in codes.values() for code in exit_codes} == {0}
    assert len(codes) >= 5

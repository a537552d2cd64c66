import asyncio
from pathlib import Path

import pytest

from serving.cli.demo import stack
from serving.cli.demo.stack import Stack
from serving.data_dir import DataDir
from serving.embedded.kubelet.records import PodDirectory, write_json
from serving.system import processes


@pytest.mark.parametrize("is_left", [True, False])
async def test_replicas_are_stopped_before_the_data_is_removed_when_no_component_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_left: bool
) -> None:
    where, commands = DataDir(tmp_path / "data"), []
    if is_left:
        own = processes.own_identity()
        run = PodDirectory(where.pods / "uid").run("main", 0)
        run.begin()
        process = [own.pid, own.start_time]
        write_json(
            run.path / "started.json", {"boot_id": own.boot_id, "recorder": process, "process": process}
        )

    def command_line(command: str, directory: DataDir) -> list[str]:
        commands.append((command, directory.root.exists()))
        return ["true"]

    monkeypatch.setattr(stack, "_slipway", command_line)
    await asyncio.wait_for(Stack(where).end(), 20)
    assert commands == ([("down", True)] if is_left else [])
    assert not where.root.exists()

import shutil
from pathlib import Path
from types import SimpleNamespace

import orjson
import pytest

from serving.embedded.kubelet import records
from serving.embedded.kubelet.records import PodDirectory, RunDirectory, write_json
from tests.rig.machine.deep_directories import make_deep

ENDED = {"code": 3, "signal": 0, "oom": False, "error": ""}


def test_exit_is_read_when_its_run_is_removed_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = RunDirectory(tmp_path / "0")
    run.begin()
    write_json(run.path / "exit.json", ENDED)

    def loads_after_removal(text: bytes) -> object:
        shutil.rmtree(run.path)
        return orjson.loads(text)

    slow = SimpleNamespace(loads=loads_after_removal, JSONDecodeError=orjson.JSONDecodeError)
    monkeypatch.setattr(records, "orjson", slow)
    ended = run.exit()
    assert ended is not None
    assert (ended.code, ended.finished_at is not None) == (3, True)


def test_run_that_a_shutdown_ends_has_its_reason(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "0")
    run.begin(streak=2, restart_count=1)
    run.note_shutdown()
    assert run.exit() is None
    write_json(run.path / "exit.json", ENDED)
    state = run.read()
    assert state.exit is not None
    assert (state.exit.reason, state.streak, state.restart_count) == ("NodeShutdown", 2, 1)


def test_logs_of_old_runs_are_removed_when_an_earlier_removal_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod = PodDirectory(tmp_path / "uid")
    logs = pod.path / "logs" / "main"
    logs.mkdir(parents=True)
    for index in (0, 1, 2):
        pod.run("main", index).begin()
        (logs / f"{index}.log").touch()

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", killed)
        with pytest.raises(KeyboardInterrupt):
            pod.forget_before("main", 2)
    pod.forget_before("main", 2)
    assert sorted(log.name for log in logs.iterdir()) == ["1.log", "2.log"]
    assert [run.index for run in pod.runs("main")] == [1, 2]


def test_pod_is_removed_when_a_container_has_made_a_deep_directory(tmp_path: Path) -> None:
    pod = PodDirectory(tmp_path / "uid")
    for index in (0, 1, 2):
        pod.run("main", index).begin()
        make_deep(pod.run("main", index).tmp)
    pod.forget_before("main", 2)
    assert [run.index for run in pod.runs("main")] == [1, 2]
    pod.remove()
    assert not pod.path.exists()

"""The log of a run exists before clients can read the run's status, and is bounded beside any files."""

import os
import select
from collections.abc import Callable
from pathlib import Path

import pytest

from serving.embedded.kubelet.records import RunDirectory
from tests.rig.machine.launched_run import launched


def test_log_exists_before_the_shim_opens_it(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "run" / "c" / "0")
    log = tmp_path / "0.log"
    with launched(run, log, "echo logged") as started:
        assert log.exists()
        assert log.stat().st_mode & 0o777 == 0o600
        assert started.connection.recv(1) == b""
        assert run.identities() is not None
        ended, _, _ = select.select([started.pidfd], [], [], 20)
        assert ended
    assert log.read_text() == "logged\n"


OTHERS: dict[str, Callable[[Path], object]] = {
    "fifo": os.mkfifo,
    "directory": Path.mkdir,
    "link": lambda path: path.symlink_to(path.with_name("victim")),
}


@pytest.mark.parametrize("place", ["0.log.1", "0.log.times", "0.log.1.times"])
@pytest.mark.parametrize("kind", OTHERS)
def test_run_ends_and_its_log_is_bounded_when_files_of_other_types_lie_beside_it(
    tmp_path: Path, kind: str, place: str
) -> None:
    (tmp_path / "victim").write_text("unchanged")
    OTHERS[kind](tmp_path / place)
    run = RunDirectory(tmp_path / "run" / "c" / "0")
    script = (
        "i=0; while [ $i -lt 60 ]; do i=$((i+1)); echo 'a line of thirty-two characters'; sleep 0.001; done"
    )
    with launched(run, tmp_path / "0.log", script) as started:
        ended, _, _ = select.select([started.pidfd], [], [], 20)
    exit_ = run.exit()
    assert ended
    assert exit_ is not None
    assert exit_.code == 0
    assert 0 < (tmp_path / "0.log").stat().st_size <= 1000
    assert (tmp_path / "victim").read_text() == "unchanged"

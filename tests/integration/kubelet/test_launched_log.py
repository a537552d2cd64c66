"""The log of a run exists before clients can read the run's status."""

import select
from pathlib import Path

from serving.embedded.kubelet.records import RunDirectory
from tests.rig.launched_run import launched


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

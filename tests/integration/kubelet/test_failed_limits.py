"""The limits of a run that could not be set are in its record."""

from pathlib import Path

import pytest

from serving.embedded.kubelet.records import RunDirectory
from serving.embedded.kubelet.resources.cgroups import Cgroups, ContainerCgroups
from tests.rig.machine.launched_run import launched


def test_failed_limit_is_recorded_before_the_run_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reasons = {"memory": "memory.max: busy"}
    monkeypatch.setattr(Cgroups, "create", lambda *_: ContainerCgroups(not_limited=reasons))
    run = RunDirectory(tmp_path / "run" / "c" / "0")
    with launched(run, tmp_path / "0.log", "true"):
        assert run.not_limited == reasons

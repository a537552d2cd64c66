"""Files of a running process: a directory that is a file stands for a disk without room."""

import time
from pathlib import Path

import pytest

from serving.system.files import run_files


def test_a_file_that_cannot_be_written_is_logged_once_and_written_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    obstacle = tmp_path / "run"
    obstacle.touch()
    path = obstacle / "api.json"
    run_files.write(path, b"old", retry_seconds=0.01)
    run_files.write(path, b"new", retry_seconds=0.01)
    time.sleep(0.1)
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]
    obstacle.unlink()
    deadline = time.monotonic() + 10
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert path.read_bytes() == b"new"


def test_ensure_keeps_a_file_of_this_content_that_cannot_be_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "bootstrap.json"
    run_files.ensure(path, b"a", mode=0o600)

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(run_files.atomic_file, "replace", full)
    run_files.ensure(path, b"a", mode=0o600)
    with pytest.raises(OSError, match="No space"):
        run_files.ensure(path, b"b", mode=0o600)
    assert path.read_bytes() == b"a"

"""The log of a container while its file cannot be opened."""

import errno
import os
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from serving.embedded.kubelet.container import container_log
from serving.embedded.kubelet.container.container_log import RETRY_SECONDS, ContainerLog
from serving.system.files import regular_file


def test_log_goes_on_when_its_file_can_be_made_again_after_a_rotation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, tries = 0.0, 0

    def full(*_: object) -> int:
        nonlocal tries
        tries += 1
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    clock = SimpleNamespace(
        monotonic=lambda: now, clock_gettime_ns=time.clock_gettime_ns, CLOCK_REALTIME=time.CLOCK_REALTIME
    )
    monkeypatch.setattr(container_log, "time", clock)
    path = tmp_path / "0.log"
    log = ContainerLog(str(path), 100)
    log.write(b"a" * 60)
    with monkeypatch.context() as context:
        context.setattr(regular_file, "open_fd", full)
        for _ in range(10):
            log.write(b"b" * 60)
        assert tries == 1
    now = RETRY_SECONDS
    log.write(b"c" * 10)
    assert path.read_bytes() == b"c" * 10
    assert path.with_name("0.log.1").read_bytes() == b"a" * 60
    log.close()


def test_index_of_times_is_opened_again_when_it_could_not_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = regular_file.open_fd

    def without_index(path: str, flags: int) -> int:
        if path.endswith(".times"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(path, flags)

    path = tmp_path / "0.log"
    with monkeypatch.context() as context:
        context.setattr(regular_file, "open_fd", without_index)
        log = ContainerLog(str(path), 1000)
        log.write(b"a\n")
    monkeypatch.setattr(container_log, "RETRY_SECONDS", 0.0)
    log._retry_at = 0.0
    log.write(b"b\n")
    log.close()
    assert path.read_bytes() == b"a\nb\n"
    assert len((tmp_path / "0.log.times").read_bytes()) == 32, "the inode with 0, and the time of one write"

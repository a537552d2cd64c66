import os
from pathlib import Path

from serving.system.files import locks


def test_second_holder_is_refused_until_the_first_closes(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    first = locks.try_lock(path)
    assert first is not None
    assert locks.try_lock(path) is None
    os.close(first)
    second = locks.try_lock(path)
    assert second is not None
    os.close(second)


def test_directory_can_be_locked(tmp_path: Path) -> None:
    first, second = (os.open(tmp_path, os.O_RDONLY) for _ in range(2))
    locks.lock_descriptor(first)
    assert not locks.try_lock_descriptor(second)
    os.close(first)
    assert locks.try_lock_descriptor(second)
    os.close(second)

import os
import stat
from pathlib import Path

import pytest

from serving.system.files import atomic_file


def names(directory: Path) -> list[str]:
    return [entry.name for entry in directory.iterdir()]


def test_content_is_replaced_and_no_temporary_file_stays(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    path.write_bytes(b"old")
    atomic_file.replace(path, b"new", synced=True)
    assert path.read_bytes() == b"new"
    assert names(tmp_path) == ["file.json"]


def test_mode_is_exact_with_every_umask(tmp_path: Path) -> None:
    old = os.umask(0o077)
    try:
        atomic_file.replace(tmp_path / "shared", b"", mode=0o444)
        atomic_file.replace(tmp_path / "usual", b"")
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "shared").stat().st_mode) == 0o444
    assert stat.S_IMODE((tmp_path / "usual").stat().st_mode) == 0o600


def test_old_content_stays_when_the_block_fails(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with pytest.raises(IsADirectoryError), atomic_file.replacing(path) as temporary:
        tmp_path.write_bytes(Path(temporary).write_bytes(b"ne").to_bytes())
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["file"]


def test_temporary_file_lies_in_the_given_directory(tmp_path: Path) -> None:
    tmp = tmp_path / "tmp"
    tmp.mkdir()
    with atomic_file.replacing(tmp_path / "file", tmp) as temporary:
        Path(temporary).write_bytes(b"x")
        assert names(tmp) == [Path(temporary).name]
    assert (tmp_path / "file").read_bytes() == b"x"

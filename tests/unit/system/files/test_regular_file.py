import errno
import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from serving.system.files import regular_file


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(path))


OTHERS: dict[str, Callable[[Path], object]] = {
    "link": lambda path: path.symlink_to("/etc/passwd"),
    "dangling": lambda path: path.symlink_to("absent"),
    "fifo": os.mkfifo,
    "directory": Path.mkdir,
    "socket": _socket,
    "device": lambda path: path.symlink_to("/dev/zero"),
}


@pytest.mark.parametrize("flags", [os.O_RDONLY, os.O_WRONLY | os.O_CREAT], ids=["read", "write"])
@pytest.mark.parametrize("kind", OTHERS)
def test_open_refuses_at_once_when_the_file_is_of_another_type(tmp_path: Path, kind: str, flags: int) -> None:
    path = tmp_path / "file"
    OTHERS[kind](path)
    with pytest.raises(OSError, match="is not a regular file") as raised:
        regular_file.open_fd(path, flags)
    assert (raised.value.errno, raised.value.filename) == (errno.EINVAL, str(path))


def test_fifo_with_a_reader_is_refused_when_it_is_opened_for_writing(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    reader = os.open(tmp_path / "fifo", os.O_RDONLY | os.O_NONBLOCK)
    with pytest.raises(OSError, match="is not a regular file"):
        regular_file.open_fd(tmp_path / "fifo", os.O_WRONLY)
    os.close(reader)


def test_missing_file_is_missing_or_made_when_it_is_opened(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        regular_file.open_fd(tmp_path / "file")
    os.close(regular_file.open_fd(tmp_path / "file", os.O_WRONLY | os.O_CREAT))
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o600


def test_file_below_a_directory_is_opened_without_links_when_a_component_is_one(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "file").write_text("content")
    (tmp_path / "link").symlink_to("a")
    fd = regular_file.open_below(tmp_path, "a/b/file")
    assert os.read(fd, 100) == b"content"
    os.close(fd)
    for path in ("link/b/file", "a/b/file/more"):
        with pytest.raises(NotADirectoryError):
            regular_file.open_below(tmp_path, path)


@pytest.mark.parametrize(("limit", "end"), [(3, b"789"), (10, b"0123456789"), (11, b"0123456789")])
def test_end_of_a_file_is_its_last_bytes(tmp_path: Path, limit: int, end: bytes) -> None:
    (tmp_path / "file").write_bytes(b"0123456789")
    with regular_file.open_binary(tmp_path / "file") as file:
        assert regular_file.read_end(file.fileno(), limit) == end

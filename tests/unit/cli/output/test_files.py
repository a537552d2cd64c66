import os
import stat
from pathlib import Path

import pytest

from serving import errors
from serving.cli.output import files


def test_fifo_receives_the_text_and_stays_when_it_is_the_output(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fifo = tmp_path / "report"
    os.mkfifo(fifo)
    fd = os.open(fifo, os.O_RDWR | os.O_NONBLOCK)  # a writer waits for no further reader
    try:
        files.write(fifo, "text\n")
        assert os.read(fd, 100) == b"text\n"
    finally:
        os.close(fd)
    assert stat.S_ISFIFO(fifo.lstat().st_mode)
    assert [entry.name for entry in tmp_path.iterdir()] == ["report"]
    assert capsys.readouterr() == ("", f"wrote {fifo}\n")


@pytest.mark.parametrize("old", [None, "a text that is longer\n"])
def test_file_behind_a_link_is_replaced_as_a_whole_when_the_link_is_the_output(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], old: str | None
) -> None:
    link, file, name = tmp_path / "latest.json", tmp_path / "report.json", tmp_path / "other-name"
    if old is not None:
        file.write_text(old)
        name.hardlink_to(file)
    link.symlink_to(file.name)
    files.write(link, "{}\n")
    assert link.readlink() == Path(file.name)
    assert file.read_text() == "{}\n"
    assert old is None or name.read_text() == old
    assert capsys.readouterr() == (f"wrote {link}\n", "")


def test_device_behind_a_link_stays_when_the_link_is_the_output(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    link = tmp_path / "report.json"
    link.symlink_to(os.devnull)
    files.write(link, "{}\n")
    assert link.readlink() == Path(os.devnull)
    assert capsys.readouterr() == ("", f"wrote {link}\n")


def test_regular_file_is_replaced_as_a_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, name = tmp_path / "report.txt", tmp_path / "other-name"
    file.write_text("old")
    name.hardlink_to(file)
    files.write(file, "new")
    assert (file.read_text(), name.read_text()) == ("new", "old")
    assert capsys.readouterr() == (f"wrote {file}\n", "")


def test_directory_is_an_error_when_it_is_the_output(tmp_path: Path) -> None:
    with pytest.raises(errors.UserError, match=r"cannot write .*: Is a directory"):
        files.write(tmp_path, "text")

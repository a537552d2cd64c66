"""A path is opened without following links that another user may change."""

import errno
import os
from pathlib import Path

import pytest

from serving.system.files import trusted_path

NOBODY = 65_534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to another user")


def opened(path: Path) -> tuple[str, list[str]]:
    """Return the path of the deepest file, and the missing components."""
    fd, missing = trusted_path.open_deepest(str(path))
    try:
        return str(Path(f"/proc/self/fd/{fd}").readlink()), missing
    finally:
        os.close(fd)


def test_existing_path_is_opened(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert opened(tmp_path / "file") == (str(tmp_path / "file"), [])


def test_missing_components_are_returned_in_order(tmp_path: Path) -> None:
    assert opened(tmp_path / "a" / "b" / "c") == (str(tmp_path), ["a", "b", "c"])


@pytest.mark.parametrize("target", ["directory", "{root}/directory", "../data/directory", "./directory/"])
def test_own_link_is_followed(tmp_path: Path, target: str) -> None:
    root = tmp_path / "data"
    (root / "directory").mkdir(parents=True)
    (root / "link").symlink_to(target.format(root=root))
    assert opened(root / "link" / "new") == (str(root / "directory"), ["new"])


def test_target_of_a_dangling_link_is_missing(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("a/b")
    assert opened(tmp_path / "link" / "c") == (str(tmp_path), ["a", "b", "c"])


@as_root
@pytest.mark.parametrize("end", ["", "passwd", "missing"])
def test_link_of_another_user_is_refused(tmp_path: Path, end: str) -> None:
    (tmp_path / "link").symlink_to("/etc")
    os.chown(tmp_path / "link", NOBODY, NOBODY, follow_symlinks=False)
    with pytest.raises(OSError, match="link is a symbolic link that another user may change") as refused:
        opened(tmp_path / "link" / end)
    assert refused.value.errno == errno.ELOOP


@as_root
def test_link_in_a_directory_of_another_user_is_refused(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/etc")
    os.chown(tmp_path, NOBODY, NOBODY)
    with pytest.raises(OSError, match="link is a symbolic link"):
        opened(tmp_path / "link")


@pytest.mark.parametrize("mode", [0o777, 0o775])
def test_link_in_a_directory_that_others_may_write_is_refused_unless_it_is_sticky(
    tmp_path: Path, mode: int
) -> None:
    (tmp_path / "link").symlink_to("/etc")
    tmp_path.chmod(mode)
    with pytest.raises(OSError, match="link is a symbolic link"):
        opened(tmp_path / "link")
    tmp_path.chmod(mode | 0o1000)
    assert opened(tmp_path / "link") == ("/etc", [])


def test_links_that_lead_to_each_other_are_refused(tmp_path: Path) -> None:
    (tmp_path / "one").symlink_to("two")
    (tmp_path / "two").symlink_to("one")
    with pytest.raises(OSError, match="symbolic link") as refused:
        opened(tmp_path / "one")
    assert refused.value.errno == errno.ELOOP


def test_file_within_the_path_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        opened(tmp_path / "file" / "below")

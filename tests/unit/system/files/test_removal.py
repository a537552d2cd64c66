import os
import shutil
import tempfile
from pathlib import Path

import pytest

from serving.system.files import removal
from tests.rig.machine.deep_directories import make_deep

OTHER_USER = 65_534


def test_tree_is_removed_at_every_depth(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "beside" / "below").mkdir(parents=True)
    (tree / "file").touch()
    make_deep(tree)
    removal.remove_tree(tree)
    assert not tree.exists()


def test_target_of_a_link_stays_when_the_tree_with_the_link_is_removed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").touch()
    tree = tmp_path / "tree"
    (tree / "inner").mkdir(parents=True)
    (tree / "link").symlink_to(outside)
    (tree / "inner" / "link").symlink_to(outside)
    removal.remove_tree(tree)
    assert not tree.exists()
    assert (outside / "file").exists()


def test_link_in_the_place_of_the_tree_is_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").touch()
    (tmp_path / "tree").symlink_to(outside)
    removal.remove_tree(tmp_path / "tree")
    assert (outside / "file").exists()


def test_missing_tree_is_no_error(tmp_path: Path) -> None:
    removal.remove_tree(tmp_path / "missing")


def test_removal_ends_when_a_directory_cannot_be_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tree" / "closed" / "inner").mkdir(parents=True)
    (tmp_path / "tree" / "file").touch()
    rmdir = os.rmdir

    def refuse(path: str | Path, *, dir_fd: int | None = None) -> None:
        if path == "closed":
            raise PermissionError(path)
        rmdir(path, dir_fd=dir_fd)

    monkeypatch.setattr(os, "rmdir", refuse)
    removal.remove_tree(tmp_path / "tree")
    assert sorted(path.name for path in (tmp_path / "tree").iterdir()) == ["closed"]


def test_directories_that_their_owner_may_not_write_are_removed() -> None:
    work = tempfile.mkdtemp()  # pytest's own directories are closed to other users
    tree, outside = Path(work, "tree"), Path(work, "outside")
    try:
        Path(work).chmod(0o777)
        pid = os.fork()
        if pid == 0:
            try:
                if os.geteuid() == 0:
                    os.setresuid(OTHER_USER, OTHER_USER, OTHER_USER)
                outside.mkdir(mode=0o500)
                (tree / "sealed" / "models" / "closed" / "inner").mkdir(parents=True)
                (tree / "sealed" / "models" / "file").touch(0o400)
                (tree / "sealed" / "link").symlink_to(outside)
                (tree / "sealed" / "models" / "closed").chmod(0)
                (tree / "sealed" / "models").chmod(0o555)
                (tree / "sealed").chmod(0o555)
                tree.chmod(0)
                removal.remove_tree(tree)
            finally:
                os._exit(0)
        os.waitpid(pid, 0)
        assert not tree.exists()
        assert outside.stat().st_mode & 0o777 == 0o500
    finally:
        shutil.rmtree(work)


def test_tree_that_stays_is_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()

    def refuse(_: Path) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(Path, "rmdir", refuse)
    removal.remove_tree(tree)
    assert [record.getMessage() for record in caplog.records] == [
        f"{tree} cannot be removed: Operation not permitted"
    ]

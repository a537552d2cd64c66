import os
from pathlib import Path

import pytest

from serving.system.files import removal
from tests.rig.machine.deep_directories import make_deep


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

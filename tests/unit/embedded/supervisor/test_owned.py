"""The data directory belongs to the user of `up` alone."""

import os
import re
import stat
from pathlib import Path

import pytest

from serving import errors
from serving.data_dir import DataDir
from serving.embedded.supervisor import ownership
from serving.embedded.supervisor.supervisor import owned

NOBODY = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to another user")


@as_root
@pytest.mark.parametrize("name", [".", "gateway", "token"])
def test_directory_with_something_of_another_user_is_refused(tmp_path: Path, name: str) -> None:
    root = tmp_path / "data"
    (root / "gateway").mkdir(parents=True)
    (root / "token").touch()
    os.chown(root / name, NOBODY, NOBODY)
    with (
        pytest.raises(errors.UserError, match=f"must belong to user 0, got user {NOBODY}"),
        owned(DataDir(root)),
    ):
        pass


@as_root
def test_link_of_another_user_is_refused_for_every_target(tmp_path: Path) -> None:
    (tmp_path / "gateway").symlink_to("/etc")
    os.chown(tmp_path / "gateway", NOBODY, NOBODY, follow_symlinks=False)
    with pytest.raises(errors.UserError, match="must belong to user 0"), owned(DataDir(tmp_path)):
        pass


@pytest.mark.parametrize("mode", [0o755, 0o2775])
def test_directory_is_closed_to_others(tmp_path: Path, mode: int) -> None:
    tmp_path.chmod(mode)
    with owned(DataDir(tmp_path)):
        assert stat.S_IMODE(tmp_path.stat().st_mode) & 0o077 == 0


@pytest.mark.parametrize("mode", [0o777, 0o1777])
def test_directory_in_which_others_may_write_is_refused_and_keeps_its_mode(tmp_path: Path, mode: int) -> None:
    (tmp_path / "token").touch()
    tmp_path.chmod(mode)
    with (
        pytest.raises(errors.UserError, match="must not be writable by other users"),
        owned(DataDir(tmp_path)),
    ):
        pass
    assert stat.S_IMODE(tmp_path.stat().st_mode) == mode


@as_root
def test_directory_with_an_entry_of_another_user_keeps_its_mode(tmp_path: Path) -> None:
    (tmp_path / "theirs").touch()
    os.chown(tmp_path / "theirs", NOBODY, NOBODY)
    tmp_path.chmod(0o755)
    with pytest.raises(errors.UserError, match="theirs must belong to user 0"), owned(DataDir(tmp_path)):
        pass
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755


@as_root
@pytest.mark.parametrize("path", ["theirs/data", "theirs/mine/data", "mine/../theirs/data", "link/data"])
def test_directory_below_a_directory_of_another_user_is_refused(tmp_path: Path, path: str) -> None:
    theirs = tmp_path / "theirs"
    (theirs / "mine").mkdir(parents=True)
    (tmp_path / "mine").mkdir()
    (tmp_path / "link").symlink_to("theirs/mine")
    os.chown(theirs, NOBODY, NOBODY)
    with (
        pytest.raises(errors.UserError, match="theirs must belong to user 0"),
        owned(DataDir(tmp_path / path)),
    ):
        pass


@as_root
def test_directory_behind_a_link_of_another_user_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "link").symlink_to("mine")
    os.chown(tmp_path / "link", NOBODY, NOBODY, follow_symlinks=False)
    for path in (tmp_path / "link", tmp_path / "link" / "data"):
        with pytest.raises(errors.UserError, match="link must belong to user 0"), owned(DataDir(path)):
            pass


def test_directory_below_one_in_which_others_may_write_is_refused_unless_that_is_sticky(
    tmp_path: Path,
) -> None:
    parent = tmp_path / "parent"
    parent.mkdir()
    parent.chmod(0o777)
    expected = f"{parent} must not be writable by other users, got mode 0777; run `chmod o-w {parent}`"
    with pytest.raises(errors.UserError, match=re.escape(expected)), owned(DataDir(parent / "data")):
        pass
    parent.chmod(0o1777)
    with owned(DataDir(parent / "data")):
        pass


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o775])
@pytest.mark.parametrize("name", ["gateway", "token", "link"])
def test_directory_with_an_entry_that_other_users_may_write_is_refused(
    tmp_path: Path, name: str, mode: int
) -> None:
    data, elsewhere = tmp_path / "data", tmp_path / "elsewhere"
    (data / "gateway").mkdir(parents=True)
    (data / "token").touch()
    elsewhere.mkdir()
    (data / "link").symlink_to("../elsewhere")
    (data / name).chmod(mode)
    refused = (data / name).resolve()
    expected = (
        f"{refused} must not be writable by other users, got mode {mode:04o}; run `chmod g?o-w {refused}`"
    )
    with pytest.raises(errors.UserError, match=expected), owned(DataDir(data)):
        pass


@as_root
def test_directory_with_a_link_that_leads_to_another_user_is_refused(tmp_path: Path) -> None:
    data, theirs = tmp_path / "data", tmp_path / "theirs"
    (theirs / "models").mkdir(parents=True)
    os.chown(theirs, NOBODY, NOBODY)
    data.mkdir()
    (data / "models").symlink_to("../theirs/models")
    with pytest.raises(errors.UserError, match="theirs must belong to user 0"), owned(DataDir(data)):
        pass


def test_links_that_lead_to_each_other_are_refused(tmp_path: Path) -> None:
    (tmp_path / "one").symlink_to("two")
    (tmp_path / "two").symlink_to("one")
    with pytest.raises(errors.UserError, match="at most 40 symbolic links"):
        ownership.restrict_to_owner(tmp_path / "one")


def test_link_to_the_directory_itself_is_no_way_around_the_check(tmp_path: Path) -> None:
    (tmp_path / "here").symlink_to(".")
    tmp_path.chmod(0o1777)
    with pytest.raises(errors.UserError, match="must not be writable"), owned(DataDir(tmp_path / "here")):
        pass
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o1777

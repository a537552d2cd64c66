"""The data directory belongs to the user of `up` alone."""

import os
import stat
from pathlib import Path

import pytest

from serving import errors
from serving.data_dir import DataDir
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
def test_link_of_another_user_is_refused_whatever_it_leads_to(tmp_path: Path) -> None:
    (tmp_path / "gateway").symlink_to("/etc")
    os.chown(tmp_path / "gateway", NOBODY, NOBODY, follow_symlinks=False)
    with pytest.raises(errors.UserError, match="must belong to user 0"), owned(DataDir(tmp_path)):
        pass


def test_directory_in_which_everybody_may_write_is_closed(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    with owned(DataDir(tmp_path)):
        assert not tmp_path.stat().st_mode & stat.S_IWOTH

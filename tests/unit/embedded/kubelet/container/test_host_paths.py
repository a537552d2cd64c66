"""hostPath volumes, while another Pod exchanges names on their way: after the moment at which it matters."""

import errno
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from serving import errors
from serving.embedded.kubelet.container import sandbox
from serving.embedded.kubelet.container.host_paths import HostPaths
from serving.system.files import renames
from serving.system.isolation.user_ids import UserIds

USER = 1_879_048_192
"""A Pod's user."""
OTHER = USER + 1
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


def paths(tmp_path: Path, *roots: str) -> HostPaths:
    return HostPaths(tmp_path / "data", roots, None)


def made_for_a_pod(tmp_path: Path) -> tuple[HostPaths, Path]:
    """Make a directory for a Pod of the namespace `team` that has ended."""
    known = HostPaths(tmp_path / "data", [str(tmp_path)], UserIds(tmp_path / "user-ids"))
    return known, Path(known.resolve(f"{tmp_path}/made", "DirectoryOrCreate", "team", USER))


def exchange(path: Path, target: Path) -> None:
    """Replace a directory by a link, as `renameat2(RENAME_EXCHANGE)` does at once."""
    path.rename(path.with_name("away"))
    path.symlink_to(target)


def after_making(monkeypatch: pytest.MonkeyPatch, act: Callable[[str], None]) -> None:
    """Act with its name when the first directory has just been made."""
    make = os.mkdir

    def mkdir(path: Any, *arguments: Any, **options: Any) -> None:
        monkeypatch.setattr(os, "mkdir", make)
        make(path, *arguments, **options)
        act(path)

    monkeypatch.setattr(os, "mkdir", mkdir)


@pytest.mark.root
@as_root
@pytest.mark.parametrize("below", ["", "/y"])
def test_no_other_file_is_given_away_when_a_link_replaces_a_directory_that_was_just_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, below: str
) -> None:
    target = tmp_path / "target"
    target.mkdir()
    after_making(monkeypatch, lambda name: exchange(tmp_path / name, target))
    with pytest.raises(errors.Temporary, match=f"hostPath {tmp_path}/x{below}: cannot be made"):
        paths(tmp_path, str(tmp_path)).resolve(f"{tmp_path}/x{below}", "DirectoryOrCreate", "team", USER)
    assert target.stat().st_uid == 0
    assert list(target.iterdir()) == []


@pytest.mark.root
@as_root
@pytest.mark.parametrize("owner", [0, OTHER])
def test_no_other_directory_is_given_away_when_it_replaces_one_that_was_just_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: int
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    os.chown(other, owner, owner)
    if owner == 0:
        (other / "file").touch()

    swapped = []

    def swap(name: str) -> None:
        swapped.append(tmp_path / name)
        swapped[0].rename(tmp_path / "away")
        other.rename(swapped[0])
        os.link(tmp_path / "kept", swapped[0] / "kept")

    (tmp_path / "kept").touch()
    after_making(monkeypatch, swap)
    with pytest.raises(errors.Temporary, match=f"{tmp_path}/x: a directory was replaced while it was made"):
        paths(tmp_path, str(tmp_path)).resolve(f"{tmp_path}/x", "DirectoryOrCreate", "team", USER)
    assert swapped[0].stat().st_uid == owner
    assert not (tmp_path / "x").exists()


@pytest.mark.root
@as_root
def test_nothing_is_made_when_a_link_replaces_a_directory_after_the_path_was_resolved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, parent = tmp_path / "target", tmp_path / "parent"
    target.mkdir()
    parent.mkdir()
    resolve = os.path.realpath

    def realpath(path: Any, **options: Any) -> str:
        resolved = resolve(path, **options)
        if str(path) == f"{parent}/new":
            exchange(parent, target)
        return str(resolved)

    monkeypatch.setattr(os.path, "realpath", realpath)
    with pytest.raises(errors.Temporary, match="cannot be made"):
        paths(tmp_path, str(tmp_path)).resolve(f"{parent}/new", "DirectoryOrCreate", "team", USER)
    assert list(target.iterdir()) == []


@pytest.mark.root
@as_root
def test_new_directory_is_the_pods_and_those_above_it_stay_roots(tmp_path: Path) -> None:
    made = paths(tmp_path, str(tmp_path)).resolve(f"{tmp_path}/a/b/c", "DirectoryOrCreate", "team", USER)
    assert made == f"{tmp_path}/a/b/c"
    owners = [Path(f"{tmp_path}/{path}").stat().st_uid for path in ("a", "a/b", "a/b/c")]
    assert owners == [0, 0, USER]


@pytest.mark.root
@as_root
@pytest.mark.parametrize("call", ["setxattr", "fchown"])
@pytest.mark.parametrize("path", ["a", "a/b/c"])
@pytest.mark.parametrize("allowed", [True, False], ids=["by-root", "by-owner"])
def test_directory_is_the_pods_when_an_agent_was_killed_while_it_made_it(
    tmp_path: Path, call: str, path: str, *, allowed: bool
) -> None:
    parent = tmp_path / "parent"
    parent.mkdir()
    if not allowed:
        os.chown(parent, USER, USER)
    known = paths(tmp_path, *([str(parent)] if allowed else []))
    child = os.fork()
    if child == 0:
        setattr(os, call, lambda *_: os.kill(os.getpid(), signal.SIGKILL))
        known.resolve(f"{parent}/{path}", "DirectoryOrCreate", "team", USER)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    made = Path(known.resolve(f"{parent}/{path}", "DirectoryOrCreate", "team", USER))
    assert made.stat().st_uid == USER


@pytest.mark.root
@as_root
def test_directory_is_made_where_a_file_system_has_no_renames_without_replacement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(old: str, new: str, directory: int) -> None:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    monkeypatch.setattr(renames, "rename_new", refuse)
    made = paths(tmp_path, str(tmp_path)).resolve(f"{tmp_path}/a/b", "DirectoryOrCreate", "team", USER)
    assert Path(made).stat().st_uid == USER
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


@pytest.mark.root
@as_root
def test_directory_that_another_pod_has_made_meanwhile_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "parent").mkdir()
    other = tmp_path / "parent" / "x"
    after_making(monkeypatch, lambda _: other.mkdir())
    known = paths(tmp_path, str(tmp_path))
    with pytest.raises(errors.Temporary, match=r"cannot be made at .*/x: File exists"):
        known.resolve(str(other), "DirectoryOrCreate", "team", USER)
    assert other.stat().st_uid == 0
    assert [path.name for path in other.parent.iterdir()] == ["x"]


@pytest.mark.root
@as_root
def test_nothing_is_made_where_the_user_may_not_write_unless_a_root_allows_it(tmp_path: Path) -> None:
    closed, open_, link = tmp_path / "closed", tmp_path / "open", tmp_path / "link"
    closed.mkdir(mode=0o755)
    open_.mkdir()
    open_.chmod(0o777)
    link.symlink_to(closed)
    allowed = paths(tmp_path, "/nowhere", str(open_))
    for path in (closed / "new", closed / "a" / "b", link / "new", open_ / ".." / "closed" / "new"):
        with pytest.raises(errors.Temporary) as refused:
            allowed.resolve(str(path), "DirectoryOrCreate", "team", USER)
        assert str(refused.value).startswith(
            f"hostPath {path}: the Pod's user {USER} may not write in {closed},"
        )
        assert f"node.host_path_roots (/nowhere, {open_})" in str(refused.value)
    assert list(closed.iterdir()) == []
    for path in (open_ / "new", closed):
        assert allowed.resolve(str(path), "DirectoryOrCreate", "team", USER) == str(path)
    assert closed.stat().st_uid == 0
    os.chown(closed, OTHER, USER)
    with pytest.raises(errors.Temporary, match="may not write"):
        allowed.resolve(f"{closed}/new", "DirectoryOrCreate", "team", USER)
    closed.chmod(0o775)
    assert allowed.resolve(f"{closed}/by-group", "DirectoryOrCreate", "team", USER) == f"{closed}/by-group"
    assert (
        paths(tmp_path, str(link)).resolve(f"{closed}/new", "DirectoryOrCreate", "team", USER)
        == f"{closed}/new"
    )


@pytest.mark.root
@as_root
def test_directory_is_handed_on_within_its_namespace_alone_when_its_pod_has_ended(tmp_path: Path) -> None:
    known, made = made_for_a_pod(tmp_path)
    inside = made / "file"
    inside.touch()
    os.chown(inside, USER, USER)
    for kind, namespace, owner in (
        ("DirectoryOrCreate", "other", USER),
        ("Directory", "team", USER),
        ("DirectoryOrCreate", "team", OTHER),
        ("DirectoryOrCreate", "other", OTHER),
    ):
        assert known.resolve(str(made), kind, namespace, OTHER) == str(made)
        assert [made.stat().st_uid, inside.stat().st_uid] == [owner, owner], (kind, namespace)


@pytest.mark.root
@as_root
def test_directory_is_not_handed_on_when_a_pod_made_it(tmp_path: Path) -> None:
    known, made = made_for_a_pod(tmp_path)
    of_the_pod = made / "directory"
    of_the_pod.mkdir()
    os.chown(of_the_pod, USER, USER)
    assert known.resolve(str(of_the_pod), "DirectoryOrCreate", "team", OTHER) == str(of_the_pod)
    assert of_the_pod.stat().st_uid == USER


def test_directory_is_made_as_the_agents_user_when_pods_have_none_of_their_own(tmp_path: Path) -> None:
    made = paths(tmp_path).resolve(f"{tmp_path}/a/b", "DirectoryOrCreate", "team", None)
    assert Path(made).stat().st_uid == os.geteuid()


@pytest.mark.parametrize("kind", ["", "Directory", "DirectoryOrCreate", "File"])
def test_path_without_links_is_handed_on_and_the_data_directory_is_not(tmp_path: Path, kind: str) -> None:
    (tmp_path / "data" / "models").mkdir(parents=True)
    place = tmp_path / "place"
    place.touch() if kind == "File" else place.mkdir()
    (tmp_path / "link").symlink_to(tmp_path)
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    known = paths(tmp_path, str(tmp_path))
    assert known.resolve(f"{tmp_path}/link/place", kind, "team", None) == str(place)
    with pytest.raises(errors.Temporary, match="link/data/models: leads to the data directory"):
        known.resolve(f"{tmp_path}/link/data/models", kind, "team", None)
    with pytest.raises(errors.Temporary, match=f"{tmp_path}/loop: "):
        known.resolve(f"{tmp_path}/loop", kind, "team", None)


@pytest.mark.root
@as_root
def test_container_does_not_start_when_a_link_replaces_its_host_path_after_the_check(tmp_path: Path) -> None:
    for name in ("data/models", "y", "tmp"):
        (tmp_path / name).mkdir(parents=True)
    source = paths(tmp_path).resolve(f"{tmp_path}/y", "", "team", USER)
    exchange(tmp_path / "y", tmp_path / "data" / "models")
    mount = {"target": "/mnt/v", "source": source, "read_only": False, "files": None, "is_resolved": True}
    view = {"tmp": f"{tmp_path}/tmp", "cover": [], "keep": [], "hide": [], "mounts": [mount]}
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            sandbox.enter({"join": False, "oom_score": 0, "user": USER, "view": view})
        except OSError as error:
            os.write(writer, f"{error.strerror} ({error.filename})".encode())
        finally:
            os._exit(0)
    os.close(writer)
    os.waitpid(child, 0)
    with os.fdopen(reader) as answer:
        assert answer.read() == (
            f"the hostPath was replaced after it was checked, and leads to {tmp_path}/data/models ({source})"
        )


@pytest.mark.parametrize(
    ("path", "directory"),
    [("/proc", "/proc"), ("/dev/shm", "/dev"), ("/sys/fs/cgroup", "/sys"), ("link", "/proc")],
)
def test_file_system_of_the_kernel_is_refused_where_containers_are_kept_apart(
    tmp_path: Path, path: str, directory: str
) -> None:
    (tmp_path / "link").symlink_to("/proc/1")
    text = path if path.startswith("/") else f"{tmp_path}/{path}"
    apart = HostPaths(tmp_path / "data", (), UserIds(tmp_path / "user-ids"))
    with pytest.raises(errors.Temporary, match=f"hostPath {text}: leads to {directory}, which shows"):
        apart.resolve(text, "Directory", "team", USER)
    assert paths(tmp_path).resolve(text, "Directory", "team", None) == os.path.realpath(text)

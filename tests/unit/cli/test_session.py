"""The kubeconfig of a command: which file, and what it says where there is none."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from serving import errors
from serving.cli import main
from serving.cli.machine import up
from serving.cli.session import default_namespace, find_kubeconfig
from serving.kube import connect

NOT_KUBECONFIGS = ["", "[]", "text", "clusters: 5", "contexts: [3]\ncurrent-context: x", "{", "a: \udcff"]


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    for name in ("KUBECONFIG", "SLIPWAY_DATA_DIR", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def test_no_kubeconfig_anywhere_means_there_is_no_api() -> None:
    with pytest.raises(errors.NoApi, match="slipway up"):
        find_kubeconfig(None, None)


def test_a_missing_kubeconfig_means_there_is_no_api(home: Path) -> None:
    with pytest.raises(errors.NoApi, match="--kubeconfig"):
        find_kubeconfig(home / "absent", None)


@pytest.mark.parametrize("named", ["{}", ":{}", "::{}:absent", "{}:absent"])
def test_the_first_file_of_the_variable_is_used_when_entries_are_empty(
    home: Path, monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    file = home / "kubeconfig"
    file.touch()
    monkeypatch.setenv("KUBECONFIG", named.format(file))
    assert find_kubeconfig(None, None) == file


def test_the_default_is_used_when_all_entries_of_the_variable_are_empty(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", ":")
    default = home / ".kube" / "config"
    default.parent.mkdir()
    default.touch()
    assert find_kubeconfig(None, None) == default


@pytest.fixture
def locked(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory that this user may not enter, which root could."""
    directory = home / "locked"

    def refusing(method: Callable[[Path], Any]) -> Callable[[Path], Any]:
        def refuse(path: Path) -> Any:
            if directory in path.parents:
                raise PermissionError(13, "Permission denied", str(path))
            return method(path)

        return refuse

    for name in ("exists", "is_dir", "read_bytes"):
        monkeypatch.setattr(Path, name, refusing(getattr(Path, name)))
    return directory


def test_a_kubeconfig_in_a_directory_of_another_user_is_refused_by_its_directory(
    locked: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusal = f"{locked} belongs to another user.*--kubeconfig"
    with pytest.raises(errors.UserError, match=refusal):
        find_kubeconfig(locked / "kubeconfig", None)
    with pytest.raises(errors.UserError, match=refusal):
        find_kubeconfig(None, locked)
    monkeypatch.setenv("SLIPWAY_DATA_DIR", str(locked))
    with pytest.raises(errors.UserError, match=refusal):
        find_kubeconfig(None, None)


def test_down_of_another_user_is_refused_by_its_directory(locked: Path) -> None:
    for directory in (locked, locked / "data"):
        with pytest.raises(errors.UserError, match=f"{directory} belongs to another user"):
            up.down(directory)


@pytest.mark.parametrize("text", NOT_KUBECONFIGS)
async def test_a_file_that_is_no_kubeconfig_is_refused_by_its_name(home: Path, text: str) -> None:
    file = home / "kubeconfig"
    file.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(errors.UserError, match=f"{file}"):
        await connect(file, component="test")


@pytest.mark.parametrize("text", ["", "[]", "contexts: [3]\ncurrent-context: x", "{", "a: \udcff"])
def test_a_namespace_is_not_read_from_a_file_that_is_no_kubeconfig(home: Path, text: str) -> None:
    file = home / "kubeconfig"
    file.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(errors.UserError, match=f"{file}"):
        default_namespace(file)


WITH_A_TOKEN = [
    "users:\n- name: a\n  user: {token: hush-hush\nclusters: []\n",
    "users: [{name: a, user: {token: !hush-hush x}}]\n",
    "users: [{name: a, user: {token: *hush-hush}}]\n",
    "users:\n- name: a\n  user:\n    token: hush-hush: x\n",
    "contexts: []\ncurrent-context: x\nusers: hush-hush\n",
    "hush-hush",
]


KUBECONFIG = """
clusters: [{name: a, cluster: {server: "https://127.0.0.1:1"}}]
contexts: [{name: a, context: {cluster: a, user: a}}]
users: [{name: a, user: USER}]
current-context: a
"""
"""Of a kubeconfig whose credentials are USER."""
UNUSABLE = [
    KUBECONFIG.replace("USER", user)
    for user in (
        r'{token: "hush\nhush"}',
        "{client-certificate-data: aHVzaA==, client-key-data: aHVzaA==}",
        "{client-certificate: hush.pem, client-key: hush.pem}",
    )
]


@pytest.mark.parametrize("text", UNUSABLE)
async def test_credentials_that_cannot_be_used_are_refused_without_a_traceback(home: Path, text: str) -> None:
    file = home / "kubeconfig"
    file.write_text(text)
    (home / "hush.pem").write_text("hush")
    with pytest.raises(errors.UserError, match=f"cannot use {file}: its (token|certificates)"):
        await connect(file, component="test")


@pytest.mark.parametrize("text", WITH_A_TOKEN)
def test_no_message_about_a_kubeconfig_has_text_of_the_file(
    home: Path, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = home / "kubeconfig"
    file.write_text(text)
    for namespace in ([], ["-n", "default"]):
        with pytest.raises(SystemExit):
            main.run(["get", "--kubeconfig", str(file), *namespace])
        message = capsys.readouterr().err
        assert str(file) in message
        assert "hush" not in message


@pytest.mark.parametrize("text", WITH_A_TOKEN)
async def test_the_client_has_no_text_of_a_kubeconfig_in_its_message(home: Path, text: str) -> None:
    file = home / "kubeconfig"
    file.write_text(text)
    with pytest.raises(errors.UserError) as refused:
        await connect(file, component="test")
    assert "hush" not in str(refused.value)


def test_a_kubeconfig_that_is_not_yaml_is_refused_with_the_place(home: Path) -> None:
    file = home / "kubeconfig"
    file.write_text("a: b\nc: d: e\n")
    with pytest.raises(errors.UserError, match=r"not YAML at line 2, column 5$"):
        default_namespace(file)

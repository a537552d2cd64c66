"""The kubeconfig of a command: which file, and what it says where there is none."""

from pathlib import Path

import pytest

from serving import errors
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

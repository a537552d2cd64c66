"""Every command that needs the API exits with 5 where none answers, and where no kubeconfig names one."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from serving.cli import main
from serving.data_dir import DataDir
from tests.unit.cli.test_commands import ALL

EXPERIMENT = Path(__file__).parents[3] / "manifests/samples/tuning.yaml"
COMMANDS = {
    "apply": ["-f MANIFEST", "-f MANIFEST --dry-run"],
    "get": ["", "inf", "inf digits", "-w", "inf -w", "inf -o json", "inf -o jsonpath={.kind}"],
    "describe": ["inf digits", "inf"],
    "logs": ["digits", "job/train -f"],
    "top": ["", "-w", "pod"],
    "delete": ["inf digits", "-f MANIFEST", "inf -l a=b"],
    "traffic get": ["digits"],
    "traffic set": ["digits stable=90%", "digits stable=9 --wait"],
    "model list": ["", "-A"],
    "model get": ["digits-v1"],
    "model push": ["digits-v1 registry.example/digits"],
    "model pull": ["registry.example/digits:v1"],
    "model verify": ["digits-v1"],
    "model diff": ["digits-v1 digits-v2"],
    "model import": ["DIRECTORY --model digits"],
    "tune": ["-f EXPERIMENT", "-f EXPERIMENT --watch"],
    "tune status": ["digits", "digits -w", "digits -o json"],
    "tune report": ["digits"],
    "tune apply": ["digits"],
    "tune stop": ["digits"],
    "tune resume": ["digits"],
    "autoscale status": ["", "digits", "-w"],
    "autoscale explain": ["digits"],
    "autoscale record": ["digits/stable --out OUT"],
}
LINES = [f"{command} {arguments}".strip() for command, lines in COMMANDS.items() for arguments in lines]
NEED_NO_API = {"up", "down", "demo", "convert", "version", "completion"} | {
    "config show",
    "config explain",
    "autoscale simulate",
}


@pytest.fixture
def closed_port() -> Iterator[int]:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # and does not listen
        yield held.getsockname()[1]


@pytest.fixture
def data_dir(tmp_path: Path, closed_port: int) -> DataDir:
    """The data directory of an API that has stopped."""
    directory = DataDir(tmp_path / "data")
    directory.models.mkdir(parents=True)
    kubeconfig = {
        "clusters": [{"name": "local", "cluster": {"server": f"http://127.0.0.1:{closed_port}"}}],
        "contexts": [{"name": "local", "context": {"cluster": "local", "user": "admin"}}],
        "users": [{"name": "admin", "user": {"token": "secret"}}],
        "current-context": "local",
    }
    directory.kubeconfig.write_text(yaml.safe_dump(kubeconfig))
    return directory


def words(line: str, tmp_path: Path) -> list[str]:
    manifest, directory = tmp_path / "model.yaml", tmp_path / "directory"
    manifest.write_text("apiVersion: slipway.dev/v1alpha1\nkind: Model\nmetadata: {name: digits}\nspec: {}\n")
    directory.mkdir(exist_ok=True)
    (directory / "model.pkl").write_bytes(b"model")
    values = {
        "MANIFEST": manifest,
        "DIRECTORY": directory,
        "EXPERIMENT": EXPERIMENT,
        "OUT": tmp_path / "out.csv",
    }
    return [str(values.get(word, word)) for word in line.split()]


def ended(arguments: list[str]) -> int:
    with pytest.raises(SystemExit) as end:
        main.run(arguments)
    return int(end.value.code or 0)


def test_every_command_is_known_to_need_the_api_or_not() -> None:
    assert {*COMMANDS} - {"tune"} | NEED_NO_API == set(ALL)


@pytest.mark.parametrize("line", LINES)
def test_a_command_exits_with_5_when_the_api_does_not_answer(
    line: str, data_dir: DataDir, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ended([*words(line, tmp_path), "--kubeconfig", str(data_dir.kubeconfig)]) == 5
    assert "slipway up" in capsys.readouterr().err


@pytest.mark.parametrize("line", LINES)
def test_a_command_exits_with_5_when_no_kubeconfig_names_an_api(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("KUBECONFIG", "SLIPWAY_DATA_DIR", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert ended(words(line, tmp_path)) == 5
    assert "no API to talk to" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("pod digits -A", "pod/digits: give its namespace with -n, not -A"),
        ("pod digits -A -o yaml", "pod/digits: give its namespace with -n, not -A"),
        ("inf/digits -A -w", "inference.slipway.dev/digits: give its namespace with -n, not -A"),
        ("pod digits -l app=x", "give either names or -l/--field-selector, not both"),
        ("pod/digits --field-selector a=b", "give either names or -l/--field-selector, not both"),
    ],
)
def test_get_is_refused_when_a_name_is_given_with_an_option_for_many(
    line: str, message: str, data_dir: DataDir, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ended(["get", *line.split(), "--kubeconfig", str(data_dir.kubeconfig)]) == 1
    assert message in capsys.readouterr().err


def test_get_of_a_kind_without_namespaces_takes_a_name_and_all_namespaces(
    data_dir: DataDir,
) -> None:
    assert ended(["get", "namespace", "default", "-A", "--kubeconfig", str(data_dir.kubeconfig)]) == 5

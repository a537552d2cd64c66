"""Options that choose the API and the namespace stand before or after the command, as with kubectl."""

from pathlib import Path

import pytest

from serving.cli import main


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main.run(arguments)
    return int(ended.value.code or 0)


@pytest.mark.parametrize(
    "line",
    [
        "--kubeconfig FILE get",
        "--kubeconfig=FILE get",
        "-n x --kubeconfig FILE get",
        "-nx --kubeconfig=FILE get inf",
        "-n=x --kubeconfig FILE get -o=json",
        "--namespace x get --kubeconfig FILE",
        "--kubeconfig FILE -n x traffic get digits",
        "traffic --kubeconfig FILE get -n x digits",
        "-n x traffic --kubeconfig FILE get -- digits",
        "--kubeconfig FILE tune status digits",
        "tune -n x --kubeconfig FILE status digits",
        "--kubeconfig other get --kubeconfig FILE",
    ],
)
def test_options_before_the_command_are_those_of_the_command(
    line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "absent"
    assert run(*line.replace("FILE", str(file)).split()) == 5
    assert f"there is no kubeconfig at {file} (from --kubeconfig)" in capsys.readouterr().err


def test_a_data_directory_before_the_command_is_that_of_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.yaml").write_text("gateway: {port: 8123}\n")
    assert run("--data-dir", str(tmp_path), "config", "show") == 0
    assert "port: 8123" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-n"], "requires an argument"),
        (["-n", "x"], "Missing command"),
        (["traffic", "-n", "x"], "Missing command"),
        (["-n", "x", "bogus"], "No such command"),
        (["-n", "x", "config", "show"], "No such option"),
        (["--bogus", "get"], "No such option"),
    ],
)
def test_a_line_without_a_command_or_with_an_option_that_it_lacks_is_refused(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*arguments) == 2
    assert message in capsys.readouterr().err

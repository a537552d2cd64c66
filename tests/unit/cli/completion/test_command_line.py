"""What a Tab offers without an API; tests/integration/cli/test_completion.py has the names of objects."""

import pytest

from serving.cli.commands import COMMANDS
from serving.cli.completion import shells
from serving.cli.completion.command_line import completions


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("de", ["demo", "describe", "delete"]),
        ("traffic ", ["get", "set"]),
        ("-n x traffic s", ["set"]),
        ("--kubeconfig=f -nx tra", ["traffic"]),
        ("bogus ", []),
        ("get inf", ["inferences"]),
        ("get inf,mo", ["inf,models", "inf,modelversions"]),
        ("get -o y", ["yaml"]),
        ("get --output=j", ["--output=json", "--output=jsonpath="]),
        ("get --wa", ["--watch"]),
        ("get -w -- job", ["jobs"]),
        ("-", ["-n", "--namespace", "--kubeconfig", "--data-dir", "-h", "--help"]),
        ("delete --no", ["--no-wait"]),
        ("config show -o ", ["yaml", "json"]),
        ("completion ", ["bash", "zsh", "fish"]),
        ("top ", ["inferences", "pods"]),
        ("version ", []),
        ("apply -f ", []),
    ],
)
def test_words_that_fit_the_place_are_offered(line: str, offered: list[str]) -> None:
    assert completions(COMMANDS, line.split(" ")) == offered


def test_each_line_without_an_api_offers_what_needs_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path}/absent")
    assert shells.answer(["zsh", "get", "inf", ""]) == []
    assert shells.answer(["zsh", "traffic", "set", "digits", ""]) == []
    assert shells.answer(["zsh", "get", "mod"]) == ["models", "modelversions"]


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("slipway get -o=js", ["json", "jsonpath="]),
        ("slipway get --output=js", ["json", "jsonpath="]),
        ("slipway  traffic   ", ["get", "set"]),
        ("slipway -n 'my ns' traffic g", ["get"]),
        ("slipway", []),
        ("", []),
    ],
)
def test_bash_gets_what_replaces_the_word_after_its_last_break(line: str, offered: list[str]) -> None:
    assert shells.answer(["bash", line, " \t\n\"'><=;|&(:"]) == offered

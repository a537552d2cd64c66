"""The level of the logs, by the variable `SLIPWAY_LOG`."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from serving import errors
from serving.cli.machine import component, logfile
from serving.data_dir import DataDir
from serving.embedded.supervisor.restart_policy import GIVES_UP


@pytest.fixture(autouse=True)
def unchanged_logging(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The root logger of the tests, without the handlers and the level of a test."""
    root, serving = logging.getLogger(), logging.getLogger("serving")
    level, handlers, ours = root.level, root.handlers, list(serving.handlers)
    root.handlers = []  # else a configuration would close them
    monkeypatch.setattr(logging, "raiseExceptions", logging.raiseExceptions)
    yield
    for handler in [*root.handlers, *set(serving.handlers).difference(ours)]:
        handler.close()
    root.level, root.handlers, serving.handlers = level, handlers, ours


@pytest.mark.parametrize(
    ("value", "level"), [("", logging.INFO), ("debug", logging.DEBUG), ("WARNING", logging.WARNING)]
)
def test_the_level_is_that_of_the_variable_when_it_names_one(
    value: str, level: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLIPWAY_LOG", value)
    logfile.of_component("node")
    assert logging.getLogger().level == level


def test_up_is_refused_when_the_level_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLIPWAY_LOG", "verbose")
    with pytest.raises(errors.UserError, match=r"SLIPWAY_LOG: must be one of .*DEBUG.*, got 'verbose'"):
        logfile.of_up(DataDir(tmp_path))


def test_a_component_gives_up_when_the_level_is_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SLIPWAY_LOG", "verbose")
    config = tmp_path / "config.yaml"
    config.write_text("{}\n")
    arguments = ["controllers", "--data-dir", str(tmp_path / "data"), "--config", str(config)]
    assert component.main(arguments) == GIVES_UP
    assert capsys.readouterr().err.startswith("error: SLIPWAY_LOG: must be one of ")

"""The reason of a component that gives up, from its log."""

from pathlib import Path

import pytest

from serving.data_dir import DataDir
from serving.embedded.supervisor.supervisor import Supervisor
from serving.settings import SupervisorSettings

REASON = "api.port: must be free, got 6443"


@pytest.mark.parametrize("log_bytes", [10, 10_000])
def test_reason_is_the_last_error_of_a_log_of_any_size(tmp_path: Path, log_bytes: int) -> None:
    data = DataDir(tmp_path)
    data.logs.mkdir()
    log = data.logs / "api.log"
    log.write_text(f"error: an earlier one\nerror: {REASON}\nstopped\n")
    supervisor = Supervisor(data, (), SupervisorSettings(log_bytes=log_bytes))
    assert supervisor._last_words("api") == REASON
    assert [path.name for path in data.logs.iterdir()] == ["api.log"]


def test_log_is_named_when_it_has_no_error_or_could_not_be_written(tmp_path: Path) -> None:
    data = DataDir(tmp_path)
    supervisor = Supervisor(data, (), SupervisorSettings())
    assert supervisor._last_words("api") == f"api does not start; see {data.logs / 'api.log'}"

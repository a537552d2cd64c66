"""The supervision of an Envoy that ends again and again. `tests/faults` has the same with processes."""

import asyncio
from pathlib import Path

import pytest

from serving.data_dir import DataDir
from serving.router.envoy.process import supervision
from serving.router.envoy.process.supervision import EnvoySupervision

ENDS = 2_000


class LastStart(Exception):
    pass


class Ending:
    """In place of Envoy: each ends at once."""

    def __init__(self) -> None:
        self.starts = 0

    def running(self) -> None:
        return None

    def exit_code(self) -> int:
        return 1

    def start(self, _: bytes) -> None:
        self.starts += 1
        if self.starts > ENDS:
            raise LastStart


async def test_envoy_is_started_again_at_the_longest_pause_when_it_has_ended_thousands_of_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    problems: list[str] = []
    envoy = EnvoySupervision(Ending(), b"", DataDir(tmp_path), problems.append)  # type: ignore[arg-type]
    with pytest.raises(LastStart):
        await envoy._restart_ended()
    before_starts = [pause for pause in pauses if pause != supervision.PAUSE_SECONDS]
    assert before_starts[:4] == [0.2, 0.4, 0.8, 1.6]
    assert before_starts[10:] == [supervision.MOST_RETRY_SECONDS] * (len(before_starts) - 10)
    assert len(before_starts) == ENDS + 1
    assert problems == ["Envoy ends without an answer (exit code 1); see its log"]

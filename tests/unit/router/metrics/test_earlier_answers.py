"""The record of answers for the next gateway of an Envoy."""

from dataclasses import replace
from pathlib import Path

import pytest

from serving.router.envoy.counts.count_table import BOUNDS_MS, Answers
from serving.router.metrics import earlier_answers
from serving.system.processes import ProcessIdentity

ENVOY = ProcessIdentity("boot", 7, 70)
ANSWERS = {"default/digits-a/8080": Answers((0, 7, 0, 0, 1), (8, *[0] * len(BOUNDS_MS)), 7_000)}


def test_answers_are_read_as_written_when_the_envoy_is_the_same(tmp_path: Path) -> None:
    earlier_answers.write(tmp_path / "record", ENVOY, ANSWERS)
    assert earlier_answers.read(tmp_path / "record", ENVOY) == ANSWERS
    assert earlier_answers.read(tmp_path / "record", replace(ENVOY, pid=8)) == {}


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"boot_id":"boot","pid":7,"start_time":70,"clusters":{"a":[1]}}']
)
def test_record_that_is_malformed_has_no_answers(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "record").write_bytes(content)
    assert earlier_answers.read(tmp_path / "record", ENVOY) == {}
    assert earlier_answers.read(tmp_path / "missing", ENVOY) == {}


def test_record_that_cannot_be_read_has_no_answers(tmp_path: Path) -> None:
    (tmp_path / "record").mkdir()
    assert earlier_answers.read(tmp_path / "record", ENVOY) == {}

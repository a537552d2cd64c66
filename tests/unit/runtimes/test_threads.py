"""Thread counts of numeric libraries follow the cgroup's CPU limit."""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from serving.runtimes import threads


def v2(root: Path, path: str, text: str) -> None:
    (root / path).mkdir(parents=True, exist_ok=True)
    (root / path / "cpu.max").write_text(text)


def cgroup(tmp_path: Path, text: str) -> Path:
    (tmp_path / "cgroup").write_text(text)
    return tmp_path / "cgroup"


@pytest.mark.parametrize(
    ("limit", "count"), [("max 100000", "1"), ("50000 100000", "1"), ("300000 100000", "3")]
)
def test_one_thread_is_used_unless_the_limit_is_higher(
    limit: str, count: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in threads.VARIABLES:
        monkeypatch.setenv(name, "unset")
        monkeypatch.delenv(name)
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    v2(tmp_path / "fs", "a", limit)
    threads.limit_threads(tmp_path / "fs", cgroup(tmp_path, "0::/a\n"))
    assert os.environ["OPENBLAS_NUM_THREADS"] == count
    assert os.environ["OMP_NUM_THREADS"] == "7"
    for name in threads.VARIABLES[1:]:
        monkeypatch.delenv(name)


@pytest.mark.parametrize(
    ("value", "count"),
    [(None, 1), ("", 1), ("0", 1), ("4", 4), ("-4", 1), ("4,2", 1), ("\N{SUPERSCRIPT TWO}", 1)],
)
def test_limit_of_a_forked_process_is_one_thread_when_its_variable_is_no_number(
    value: str | None, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    applied: list[dict[str, int]] = []
    controller = SimpleNamespace(limit=lambda *, limits: applied.append(limits))
    monkeypatch.setattr(threads, "loaded", lambda: controller)
    threads.raise_openmp({} if value is None else {"OMP_NUM_THREADS": value})
    assert applied == ([{"openmp": count}] if count > 1 else [])

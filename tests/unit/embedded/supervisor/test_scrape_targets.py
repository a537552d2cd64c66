"""The list of pages for a Prometheus: as it is now, whole, and only while something runs."""

import json
from pathlib import Path

import pytest

from serving.data_dir import DataDir
from serving.embedded.supervisor.scrape_targets import ScrapeTargets


def note(where: DataDir, component: str, port: int) -> None:
    where.pages.mkdir(parents=True, exist_ok=True)
    where.metrics(component).write_text(json.dumps({"port": port}))


def listed(where: DataDir) -> object:
    return json.loads(where.prometheus_targets.read_bytes())


def group(component: str, port: int) -> object:
    return {
        "targets": [f"127.0.0.1:{port}"],
        "labels": {"__metrics_path__": "/metrics", "component": component},
    }


def test_targets_follow_ports_and_are_written_only_on_change(tmp_path: Path) -> None:
    where = DataDir(tmp_path)
    targets = ScrapeTargets(where)
    targets.write()
    assert listed(where) == []
    note(where, "gateway", 4711)
    note(where, "activator", 4712)
    targets.write()
    assert listed(where) == [group("activator", 4712), group("gateway", 4711)]
    first = where.prometheus_targets.stat().st_ino
    targets.write()
    assert where.prometheus_targets.stat().st_ino == first
    note(where, "gateway", 4713)
    targets.write()
    assert listed(where) == [group("activator", 4712), group("gateway", 4713)]
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["prometheus-targets.json"]


def test_removed_targets_file_is_written_again(
    tmp_path: Path,
) -> None:
    where = DataDir(tmp_path)
    targets = ScrapeTargets(where)
    note(where, "gateway", 4711)
    targets.write()
    targets.remove()
    targets.remove()
    assert not where.prometheus_targets.exists()
    targets.write()
    assert listed(where) == [group("gateway", 4711)]


def test_failure_to_write_targets_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    where = DataDir(tmp_path)
    obstacle = where.prometheus_targets
    obstacle.mkdir()
    targets = ScrapeTargets(where)
    targets.write()
    targets.write()
    assert len(caplog.records) == 1
    obstacle.rmdir()
    targets.write()
    assert listed(where) == []

"""The Prometheus targets: current, complete, and only while components run."""

import json
from pathlib import Path

import pytest

from serving.data_dir import DataDir
from serving.embedded.supervisor.scrape_targets import ScrapeTargets


def note(data_dir: DataDir, component: str, port: int) -> None:
    data_dir.pages.mkdir(parents=True, exist_ok=True)
    data_dir.metrics(component).write_text(json.dumps({"port": port}))


def listed(data_dir: DataDir) -> object:
    return json.loads(data_dir.prometheus_targets.read_bytes())


def group(component: str, port: int) -> object:
    return {
        "targets": [f"127.0.0.1:{port}"],
        "labels": {"__metrics_path__": "/metrics", "component": component},
    }


def test_targets_follow_ports_and_are_written_only_on_change(tmp_path: Path) -> None:
    data_dir = DataDir(tmp_path)
    targets = ScrapeTargets(data_dir)
    targets.write()
    assert listed(data_dir) == []
    note(data_dir, "gateway", 4711)
    note(data_dir, "activator", 4712)
    targets.write()
    assert listed(data_dir) == [group("activator", 4712), group("gateway", 4711)]
    first = data_dir.prometheus_targets.stat().st_ino
    targets.write()
    assert data_dir.prometheus_targets.stat().st_ino == first
    note(data_dir, "gateway", 4713)
    targets.write()
    assert listed(data_dir) == [group("activator", 4712), group("gateway", 4713)]
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["prometheus-targets.json"]


def test_removed_targets_file_is_written_again(
    tmp_path: Path,
) -> None:
    data_dir = DataDir(tmp_path)
    targets = ScrapeTargets(data_dir)
    note(data_dir, "gateway", 4711)
    targets.write()
    targets.remove()
    targets.remove()
    assert not data_dir.prometheus_targets.exists()
    targets.write()
    assert listed(data_dir) == [group("gateway", 4711)]


def test_failure_to_write_targets_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    data_dir = DataDir(tmp_path)
    obstacle = data_dir.prometheus_targets
    obstacle.mkdir()
    targets = ScrapeTargets(data_dir)
    targets.write()
    targets.write()
    assert len(caplog.records) == 1
    obstacle.rmdir()
    targets.write()
    assert listed(data_dir) == []

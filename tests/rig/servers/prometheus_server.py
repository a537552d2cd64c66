"""Prometheus in a process of its own; tests are skipped if it is not installed."""

import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from tests.rig.machine.ports import free_port


def _program(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"{name} is not installed (Debian package prometheus)")
    return path


def check(config: Path) -> None:
    """Check a configuration, and the files of targets that it names, by promtool."""
    checked = subprocess.run(
        [_program("promtool"), "check", "config", str(config)], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


@contextmanager
def prometheus(
    root: Path, *, history: Iterable[str] = (), scrape: Iterable[dict[str, object]] = ()
) -> Iterator[str]:
    """Yield the URL of a Prometheus.

    Args:
        root: a directory that does not exist.
        history: its initial samples, as lines of OpenMetrics.
        scrape: its `scrape_configs`.
    """
    program, port = _program("prometheus"), free_port()
    root.mkdir()
    config, data = root / "prometheus.yml", root / "data"
    config.write_text(yaml.safe_dump({"global": {"scrape_interval": "1s"}, "scrape_configs": list(scrape)}))
    if lines := list(history):
        (root / "history").write_text("\n".join([*lines, "# EOF", ""]))
        blocks = ["tsdb", "create-blocks-from", "openmetrics", str(root / "history"), str(data)]
        subprocess.run([_program("promtool"), *blocks], check=True, capture_output=True)
    with (root / "log").open("wb") as log:
        process = subprocess.Popen(
            [
                program,
                f"--config.file={config}",
                f"--storage.tsdb.path={data}",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=log,
            stderr=log,
        )
    try:
        _wait(process, f"http://127.0.0.1:{port}", root / "log")
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def _wait(process: "subprocess.Popen[bytes]", url: str, log: Path) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(f"{url}/-/ready", timeout=1):
                return
        except OSError:
            time.sleep(0.02)
    raise AssertionError(f"Prometheus did not start: {log.read_text()[-2000:]}")

"""Waits for the Envoys that gateways in this process start."""

from collections.abc import Iterator

import pytest

from serving.router.envoy.process.envoy_process import EnvoyProcess, RunningEnvoy


@pytest.fixture(autouse=True)
def _envoys_have_ended(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fail a test whose Envoy still runs. One that has ended is a zombie until this waits for it."""
    started: list[EnvoyProcess] = []
    start = EnvoyProcess.start

    def recorded(process: EnvoyProcess, bootstrap: bytes) -> RunningEnvoy:
        envoy = start(process, bootstrap)
        started.append(process)
        return envoy

    monkeypatch.setattr(EnvoyProcess, "start", recorded)
    yield
    running = [process for process in started if process.exit_code() is None]
    assert not running

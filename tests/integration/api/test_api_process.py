"""The server as a process: SIGKILL, stopping, and a port in use."""

import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx

from tests.objects.config_maps import MAPS, config_map, events
from tests.rig.servers.api_process import ApiProcess


def test_acknowledged_writes_survive_sigkill_under_concurrent_writers(server: ApiProcess) -> None:
    path = MAPS.format("default")
    acknowledged: list[tuple[str, str]] = []

    def write(worker: int) -> None:
        with server.http() as client:
            for index in range(1000):
                try:
                    created = client.post(path, json=config_map(f"w{worker}-{index}"))
                except httpx.HTTPError:
                    return
                acknowledged.append((f"w{worker}-{index}", created.json()["metadata"]["resourceVersion"]))

    with ThreadPoolExecutor(4) as pool:
        for worker in range(4):
            pool.submit(write, worker)
        deadline = time.monotonic() + 20
        while len(acknowledged) < 100 and time.monotonic() < deadline:
            time.sleep(0.01)
        server.stop(signal.SIGKILL)
    server.start()
    with server.http() as client:
        versions = {
            m["metadata"]["name"]: m["metadata"]["resourceVersion"] for m in client.get(path).json()["items"]
        }
    assert len(acknowledged) >= 100
    assert {name: version for name, version in acknowledged if versions.get(name) != version} == {}


def test_stopping_does_not_wait_for_watchers_and_frees_the_port(server: ApiProcess) -> None:
    ready, ended = threading.Event(), threading.Event()

    def watch() -> None:
        with server.http() as client:
            for _ in events(client, "/api/v1/namespaces"):
                ready.set()
        ended.set()

    thread = threading.Thread(target=watch)
    thread.start()
    assert ready.wait(10)
    assert server.stop() < 2
    assert ended.wait(5)
    thread.join()
    server.start()


def test_the_error_of_a_port_in_use_names_the_option(server: ApiProcess, tmp_path: Path) -> None:
    program = (
        "import asyncio, sys; from pathlib import Path; from dataclasses import replace\n"
        "from serving import errors; from serving.embedded.apiserver import server\n"
        "from serving.data_dir import DataDir\n"
        "from serving.resources import catalog; from serving.settings import DEFAULTS\n"
        "try: asyncio.run(server.run(DataDir(Path(sys.argv[1])),"
        " replace(DEFAULTS, api=replace(DEFAULTS.api, port=int(sys.argv[2]))), catalog.DEFINITIONS))\n"
        "except errors.UserError as error: print(error)"
    )
    output = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "other"), str(server.settings.port)],
        capture_output=True,
        text=True,
        check=False,
        timeout=20,
    ).stdout
    assert f"127.0.0.1:{server.settings.port} is in use" in output
    assert "--port" in output
    assert not (tmp_path / "other" / "kubeconfig").exists()

"""A real node agent in a process of its own, for tests: start, kill, start again; and Pods to give it."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from serving import errors
from serving.kube import Kube
from serving.resources import kinds
from serving.settings import DataDir

_PROGRAM = """
import asyncio, logging, signal, sys
from dataclasses import replace
from pathlib import Path
from serving.embedded.node import agent
from serving.settings import DEFAULTS, DataDir
logging.basicConfig(level=logging.INFO)
node = replace(DEFAULTS.node, backoff_base_seconds=0.1, drain_seconds=0.5, log_bytes=20_000, blocked_cap_seconds=0.3)

async def main():
    task = asyncio.ensure_future(agent.run(DataDir(Path(sys.argv[1])), replace(DEFAULTS, node=node)))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    try:
        await task
    except asyncio.CancelledError:
        pass

asyncio.run(main())
"""


class NodeProcess:
    """One agent over one data directory."""

    def __init__(self, data_dir: DataDir) -> None:
        self.data_dir = data_dir
        self.log = data_dir.root.with_name(data_dir.root.name + ".node.log")
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> "NodeProcess":
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-c", _PROGRAM, str(self.data_dir.root)], stdout=output, stderr=output
            )
        return self

    def stop(self, sig: int = signal.SIGTERM) -> None:
        assert self.process is not None
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.process.pid, sig)
        self.process.wait(10)


def pod(namespace: str, name: str, script: str, **container: Any) -> dict[str, Any]:
    """A Pod that runs Python code; `spec_*` arguments go to its spec."""
    spec = {
        key.removeprefix("spec_"): container.pop(key) for key in list(container) if key.startswith("spec_")
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "terminationGracePeriodSeconds": 5,
            "containers": [
                {
                    "name": "main",
                    "image": "slipway.dev/runtimes/python",
                    "args": ["-u", "-c", script],
                    **container,
                }
            ],
            **spec,
        },
    }


SERVER = """
import http.server, os
class H(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if os.path.exists('/tmp/fine') or self.path != '/ready' else 503); self.end_headers()
    def log_message(self, *a): pass
print('up', flush=True)
http.server.HTTPServer((os.environ['HOST'], int(os.environ['PORT'])), H).serve_forever()
"""


async def until(
    kube: Kube, namespace: str, name: str, holds: Callable[[dict[str, Any]], bool], seconds: float = 15
) -> dict[str, Any]:
    """Poll a Pod until it is as wanted."""
    deadline = time.monotonic() + seconds
    found: dict[str, Any] = {}
    while time.monotonic() < deadline:
        with contextlib.suppress(errors.Unavailable):
            found = await kube.get(kinds.POD, namespace, name)
            if found.get("status") and holds(found):
                return found
        await asyncio.sleep(0.03)
    raise AssertionError(f"{name} is {found.get('metadata')} {found.get('status')}")


async def until_gone(kube: Kube, namespace: str, name: str, seconds: float = 15) -> None:
    """Poll until there is no such Pod."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            found = await kube.get(kinds.POD, namespace, name)
        except errors.NotFound:
            return
        await asyncio.sleep(0.03)
    raise AssertionError(f"{name} is still there: {found}")


def phase(wanted: str) -> Callable[[dict[str, Any]], bool]:
    return lambda pod: pod["status"].get("phase") == wanted


def is_ready(pod: dict[str, Any]) -> bool:
    return any(c["type"] == "Ready" and c["status"] == "True" for c in pod["status"].get("conditions") or [])


def main_status(pod: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = (pod["status"].get("containerStatuses") or [{}])[0]
    return found


def log_of(data_dir: DataDir, pod: dict[str, Any], restart: int = 0, container: str = "main") -> str:
    return data_dir.pod_log(pod["metadata"]["uid"], container, restart).read_text()

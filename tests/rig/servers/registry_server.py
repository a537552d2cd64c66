"""docker-registry in a process of its own, which tests start, stop, kill and restart over the same files."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.rig.machine.ports import free_port

USER, PASSWORD = "alice", "s3cret"
_BCRYPT = "$2y$05$abcdefghijklmnopqrstuuLK7U1u6pVRmL7L1BBM2aS35PSZnDXlK"


class RegistryServer:
    """One registry over one directory; restarts keep the port."""

    def __init__(self, root: Path, auth: dict[str, Any] | None = None) -> None:
        if shutil.which("docker-registry") is None:
            pytest.skip("docker-registry is not installed (Debian package docker-registry)")
        root.mkdir(parents=True)
        self.port = free_port()
        self.host = f"127.0.0.1:{self.port}"
        self.data = root / "data"
        self.config = root / "registry.yml"
        self.log = root / "registry.log"
        self.process: subprocess.Popen[bytes] | None = None
        settings: dict[str, Any] = {
            "version": 0.1,
            "log": {"level": "warn"},
            "http": {"addr": self.host, "secret": "the same after a restart"},
            "storage": {"filesystem": {"rootdirectory": str(self.data)}, "delete": {"enabled": True}},
        }
        if auth:
            settings["auth"] = auth
        self.config.write_text(yaml.safe_dump(settings))

    @classmethod
    def with_htpasswd(cls, root: Path) -> "RegistryServer":
        path = root.with_name(f"{root.name}.htpasswd")
        path.write_text(f"{USER}:{_BCRYPT}\n")
        return cls(root, {"htpasswd": {"realm": "test", "path": str(path)}})

    def start(self) -> "RegistryServer":
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                ["docker-registry", "serve", self.config], stdout=output, stderr=output
            )
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                return self
            if self.process.poll() is not None:
                break
            time.sleep(0.02)
        raise AssertionError(f"the registry did not start: {self.log.read_text()[-2000:]}")

    def stop(self, sig: int = signal.SIGTERM) -> None:
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.process.pid, sig)
            self.process.wait()
            self.process = None

    def kill(self) -> None:
        self.stop(signal.SIGKILL)

    def requests(self) -> list[str]:
        """Return the request lines of the access log, without queries."""
        lines = [line for line in self.log.read_text(errors="replace").splitlines() if ' HTTP/1.1" ' in line]
        return [
            f"{part[0]} {part[1].partition('?')[0]}"
            for part in (line.split('"')[1].split() for line in lines)
        ]

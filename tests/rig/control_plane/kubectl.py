"""The real kubectl, for tests with a namespace of their own."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

KUBECTL = os.environ.get("KUBECTL") or shutil.which("kubectl")
needs_kubectl = [
    pytest.mark.kubectl,
    pytest.mark.skipif(KUBECTL is None, reason="kubectl is not installed: set KUBECTL or put it on PATH"),
]


class Kubectl:
    """kubectl in a namespace of its own."""

    def __init__(self, kubeconfig: Path, home: Path, namespace: str) -> None:
        self.namespace = namespace
        assert KUBECTL is not None
        self._command = [KUBECTL, f"--kubeconfig={kubeconfig}", f"--namespace={namespace}"]
        self._environment = {"HOME": str(home), "PATH": os.environ["PATH"]}

    def start(self, *args: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [*self._command, *args],
            env=self._environment,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )

    def fails(self, *args: str, stdin: str = "") -> str:
        process = self.start(*args)
        output, _ = process.communicate(stdin, timeout=20)
        assert process.returncode != 0, output
        return output

    def __call__(self, *args: str, stdin: str = "") -> str:
        process = self.start(*args)
        output, _ = process.communicate(stdin, timeout=20)
        assert process.returncode == 0, output
        return output

"""CPU time of short commands, and of the imports of components.

The commands are help, version, a Tab, and a `get` without an API, the start of every command. Two components
are imported as they are, and after what their libraries would import as well: the command line of CEL's, and
the generated Kubernetes client.

User and system time of a new process each, in turn, beside `python -c pass`. The kubeconfig names a closed
port, so `get` imports and configures its client and then fails at once.
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from rig.harness import Bar, at_most, interval, report

BAR_SECONDS = 0.3
"""Of `--help`, `version` and a Tab."""
KUBECONFIG = """
apiVersion: v1
kind: Config
clusters: [{name: local, cluster: {server: "http://127.0.0.1:1"}}]
contexts: [{name: local, context: {cluster: local, user: user}}]
users: [{name: user, user: {token: secret}}]
current-context: local
"""
IMPORTS = {
    "api": "serving.embedded.apiserver.server, serving.resources.catalog",
    "apiWithCommandLineOfCel": "cel.cli, serving.embedded.apiserver.server, serving.resources.catalog",
    "gateway": "serving.router.gateway",
    "gatewayWithGeneratedClient": "kubernetes.aio.client.api_client, serving.router.gateway",
}
"""Modules that are imported in turn."""
SLIPWAY = [sys.executable, "-m", "serving.app"]


def cpu_seconds(command: list[str], home: str) -> float:
    """Return user and system time of one process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = {**os.environ, "HOME": home, "SLIPWAY_DATA_DIR": home}
    environment.pop("KUBECONFIG", None)
    subprocess.run(command, env=environment, capture_output=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main(*, runs: int) -> None:
    with tempfile.TemporaryDirectory() as home:
        kubeconfig = Path(home) / "closed"
        kubeconfig.write_text(KUBECONFIG)
        commands = {
            "python": [sys.executable, "-c", "pass"],
            "help": [*SLIPWAY, "--help"],
            "version": [*SLIPWAY, "version"],
            "getHelp": [*SLIPWAY, "get", "--help"],
            "get": [*SLIPWAY, "get", "--kubeconfig", str(kubeconfig)],
            **{name: [sys.executable, "-c", f"import {modules}"] for name, modules in IMPORTS.items()},
            "tab": [*SLIPWAY, "__complete", "zsh", "get", "--kubeconfig", str(kubeconfig), "inf", ""],
        }
        for command in commands.values():
            cpu_seconds(command, home)  # writes bytecode
        samples: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(runs):
            for name, command in commands.items():
                samples[name].append(cpu_seconds(command, home))
    seconds = {name: interval(values) for name, values in samples.items()}
    bars: list[Bar] = [
        at_most(f"CPU seconds of slipway {name}", seconds[key], BAR_SECONDS)
        for key, name in (("help", "--help"), ("version", "version"), ("tab", "__complete"))
    ]
    report("cli_start", {"cpuSeconds": seconds}, bars)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="5 runs")
    parser.add_argument("--runs", type=int, default=30, help="of each command")
    options = parser.parse_args()
    main(runs=5 if options.quick else options.runs)

"""The modules that quick commands do not import, as each costs more than the rest of the command."""

import subprocess
import sys
from pathlib import Path

import pytest

from serving.cli.machine.components import DECLARATIONS

PROGRAM = """
import sys
from serving.app import main
sys.argv = ["slipway", *sys.argv[1:]]
try:
    main()
except SystemExit as ended:
    assert ended.code in (None, 0, 5), ended.code
print("MODULES", *sys.modules, file=sys.stderr)
"""
SERVERS_AND_CLIENTS = {"aiohttp", "kubernetes", "httpx", "fastapi", "uvicorn", "uvloop", "serving.kube"}
NUMBERS = {"numpy", "scipy", "sklearn", "joblib", "pandas", "statsmodels", "skopt"}
KUBECONFIG = """
apiVersion: v1
kind: Config
clusters: [{name: local, cluster: {server: "http://127.0.0.1:1"}}]
contexts: [{name: local, context: {cluster: local, user: user}}]
users: [{name: user, user: {token: secret}}]
current-context: local
"""
HEAVY = SERVERS_AND_CLIENTS | NUMBERS | {"cryptography", "jinja2", "cel"}


def imported(arguments: list[str], home: Path) -> set[str]:
    """Return the modules that a command line imports."""
    completed = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        capture_output=True,
        text=True,
        check=True,
        env={"HOME": str(home), "PATH": "/usr/bin:/bin"},
    )
    return set(completed.stderr.partition("MODULES")[2].split())


def test_the_list_of_commands_imports_no_command(tmp_path: Path) -> None:
    modules = imported(["--help"], tmp_path)
    assert modules & (HEAVY | {"pydantic", "asyncio", "yaml", "orjson", "rich"}) == set()
    assert not [name for name in modules if name.startswith(("serving.cli.objects", "serving.resources"))]


@pytest.mark.parametrize(
    "arguments",
    [
        ["get", "--help"],
        ["apply", "--help"],
        ["demo", "--help"],
        ["traffic", "set", "-h"],
        ["model", "push", "-h"],
        ["tune", "-h"],
        ["autoscale", "simulate", "-h"],
    ],
    ids=" ".join,
)
def test_help_imports_neither_clients_nor_numbers(arguments: list[str], tmp_path: Path) -> None:
    assert imported(arguments, tmp_path) & (HEAVY | {"pydantic"}) == set()


def test_version_imports_no_client_without_an_api(tmp_path: Path) -> None:
    modules = imported(["version"], tmp_path)
    assert modules & (HEAVY | {"pydantic", "asyncio", "yaml", "rich"}) == set()


@pytest.mark.parametrize(
    "line", ["get inf", "traffic set digits", "tune apply", "model push", "autoscale status"]
)
def test_a_tab_imports_no_client_and_no_parser(line: str, tmp_path: Path) -> None:
    """The API is asked for names by the standard library."""
    kubeconfig = tmp_path / "config"
    kubeconfig.write_text(KUBECONFIG)
    options = ["-n", "default", "--kubeconfig", str(kubeconfig)]
    modules = imported(["__complete", "zsh", *options, *line.split(), ""], tmp_path)
    assert "urllib.request" in modules
    assert modules & (HEAVY | {"pydantic", "rich"}) == set()


def test_get_imports_only_the_asynchronous_client(tmp_path: Path) -> None:
    """Without its synchronous and its generated client, `kubernetes` costs a third."""
    kubeconfig = tmp_path / "config"
    kubeconfig.write_text(KUBECONFIG)
    modules = imported(["get", "--kubeconfig", str(kubeconfig)], tmp_path)
    assert "kubernetes.aio.client.rest" in modules
    synchronous = {"kubernetes.client", "kubernetes.config", "requests", "requests_oauthlib", "urllib3"}
    generated = {"kubernetes.aio.client.api_client", "dateutil"}
    others = NUMBERS | {"fastapi", "uvicorn", "cryptography", "rich"}
    assert modules & (synchronous | generated | others) == set()


@pytest.mark.parametrize("name", ["node", "gateway", "activator"])
def test_components_without_objects_of_ours_do_not_import_pydantic(name: str) -> None:
    program = f"import sys, {DECLARATIONS[name].module}; print(*sys.modules)"
    modules = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert set(modules.stdout.split()) & {"pydantic", "dateutil", "numpy"} == set()


def test_the_generated_client_is_importable_after_ours() -> None:
    program = """
import serving.kube
from kubernetes.aio.client import ApiClient
assert ApiClient.__module__ == "kubernetes.aio.client.api_client"
"""
    subprocess.run([sys.executable, "-c", program], check=True)

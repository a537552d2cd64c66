"""What the quick commands do not import: each of these costs them more than all that they do."""

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import sys
from serving.app import main
sys.argv = ["slipway", *sys.argv[1:]]
try:
    main()
except SystemExit as ended:
    assert not ended.code, ended.code
print(*sys.modules, file=sys.stderr)
"""
SERVERS_AND_CLIENTS = {"aiohttp", "kubernetes", "httpx", "fastapi", "uvicorn", "uvloop", "ssl"}
NUMBERS = {"numpy", "scipy", "sklearn", "joblib"}
HEAVY = SERVERS_AND_CLIENTS | NUMBERS | {"asyncio", "yaml", "orjson", "rich", "cryptography", "serving.kube"}


def imported(arguments: list[str], home: Path) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        capture_output=True, text=True, check=True, env={"HOME": str(home), "PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    return set(done.stderr.split())


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["apply", "--help"],
        ["demo", "--help"],
        ["traffic", "set", "-h"],
        ["model", "push", "-h"],
        ["tune", "status", "-h"],
        ["autoscale", "simulate", "-h"],
    ],
    ids=" ".join,
)
def test_help_imports_nothing_that_does_the_work(arguments: list[str], tmp_path: Path) -> None:
    assert imported(arguments, tmp_path) & HEAVY == set()


def test_version_imports_no_client_when_there_is_no_api(tmp_path: Path) -> None:
    assert imported(["version"], tmp_path) & (HEAVY - {"orjson"} | {"typer", "pydantic"}) == set()

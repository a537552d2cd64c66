"""Envoy's module: its source has no warnings, and Envoy is started again with another one."""

import hashlib
import shutil
import subprocess
from pathlib import Path

import orjson
import pytest

from serving.router.envoy import module
from serving.router.envoy.bootstrap import bootstrap
from serving.settings import GatewaySettings

SOURCE = Path(module.__file__).parent
SETTINGS = GatewaySettings()
SOCKETS = {name: f"/data/gateway/{name}.sock" for name in ("admin", "probe", "changes")}


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_source_compiles_without_warnings(compiler: str, tmp_path: Path) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed: nothing checks the module with it")
    flags = ["-std=c11", "-O2", "-D_POSIX_C_SOURCE=200809L", "-fvisibility=hidden", "-fPIC", "-shared"]
    strict = ["-Wall", "-Wextra", "-Wconversion", "-Wno-sign-conversion", "-Wshadow", "-Wundef", "-Werror"]
    output = str(tmp_path / "module.so")
    subprocess.run(
        [compiler, *flags, *strict, "-o", output, *map(str, sorted(SOURCE.glob("*.c")))],
        check=True,
    )
    assert Path(output).exists()


def test_bootstrap_has_the_digest_of_the_library() -> None:
    digest = hashlib.sha256(module.library().read_bytes()).hexdigest()
    assert digest in orjson.dumps(bootstrap(SETTINGS, port=1, sockets=SOCKETS)).decode()

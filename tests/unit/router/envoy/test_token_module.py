"""The module of token accounting: its source has no warnings, and a gateway without it says so."""

import hashlib
import shutil
import subprocess
from pathlib import Path

import orjson
import pytest

from serving.router.envoy import routes, token_accounting, token_module
from serving.router.envoy.bootstrap import bootstrap
from serving.settings import GatewaySettings

SOURCE = Path(token_module.__file__).parent
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
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not installed: the module of token accounting was not built")
    library = token_module.library()
    assert library is not None
    digest = hashlib.sha256(library.read_bytes()).hexdigest()
    assert digest in orjson.dumps(bootstrap(SETTINGS, port=1, sockets=SOCKETS)).decode()


def test_models_of_a_namespace_answer_503_with_the_reason_without_the_module(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(token_module, "library", lambda: None)
    entry = routes.models_entry("default", ["chat"], SETTINGS)
    assert token_module.NOT_BUILT.encode() in entry


def test_bootstrap_without_the_module_has_none_of_its_filters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_module, "library", lambda: None)
    text = orjson.dumps(bootstrap(SETTINGS, port=1, sockets=SOCKETS)).decode()
    assert "dynamic_modules" not in text
    assert token_accounting.BUFFER_FILTER in text

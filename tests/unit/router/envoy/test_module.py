"""Envoy's module: its source has no warnings, and Envoy is started again with another one."""

import hashlib
import re
import shutil
import subprocess
from pathlib import Path

import orjson
import pytest

from serving import grpc_status
from serving.router.envoy import module
from serving.router.envoy.bootstrap import bootstrap
from serving.router.envoy.counts import count_table
from serving.router.envoy.counts.token_counts import BOUNDS_US
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


def bounds(file: str) -> list[int]:
    """Return the bounds of a histogram in the source, in microseconds."""
    (listed,) = re.findall(r"BOUNDS\[\w+ - 1\] = \{.*\n([\d,\s]+)\};", (SOURCE / file).read_text())
    return [int(number) for number in re.findall(r"\d+", listed)]


def test_bounds_of_histograms_are_those_by_which_the_gateway_reads_them() -> None:
    assert bounds("answers.c") == [1000 * bound for bound in count_table.BOUNDS_MS]
    assert bounds("backend.c") == list(BOUNDS_US)


def test_error_of_grpc_has_the_class_of_the_same_error_over_http() -> None:
    (classes,) = re.findall(r'CLASS_OF_GRPC\[\] = "(\d+)"', (SOURCE / "logger.c").read_text())
    assert classes[0] == "2"
    assert len(classes) == 17
    # A client's and the gateway's timeout have one status in gRPC; a client sees the second.
    by_status = {grpc: http for http, grpc in grpc_status.STATUS_OF.items() if http != 408}
    assert {classes[grpc] for grpc in by_status} == {"4", "5"}
    assert all(classes[grpc] == str(http // 100) for grpc, http in by_status.items())


def test_bootstrap_has_the_digest_of_the_library() -> None:
    digest = hashlib.sha256(module.library().read_bytes()).hexdigest()
    assert digest in orjson.dumps(bootstrap(SETTINGS, port=1, sockets=SOCKETS)).decode()

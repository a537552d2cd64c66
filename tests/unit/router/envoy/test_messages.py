"""The generated modules are current. Other tests compare the numbers with Envoy's and tritonclient's."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[4]
PROTOS = ("serving/router/envoy/messages.proto", "serving/runtimes/grpc/messages.proto")


@pytest.mark.parametrize("proto", PROTOS)
def test_the_generated_messages_are_current(tmp_path: Path, proto: str) -> None:
    pytest.importorskip("grpc_tools")
    outputs = [f"--python_out={tmp_path}", f"--pyi_out={tmp_path}"]
    subprocess.run([sys.executable, "-m", "grpc_tools.protoc", "-I.", *outputs, proto], cwd=ROOT, check=True)
    for suffix in ("_pb2.py", "_pb2.pyi"):
        generated = proto.replace(".proto", suffix)
        assert (tmp_path / generated).read_text() == (ROOT / generated).read_text(), "run `make proto`"

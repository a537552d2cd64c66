"""The generated modules are current. An integration test compares the numbers with Envoy's."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[4]
PROTO = "serving/router/envoy/messages.proto"


def test_the_generated_messages_are_current(tmp_path: Path) -> None:
    pytest.importorskip("grpc_tools")
    outputs = [f"--python_out={tmp_path}", f"--pyi_out={tmp_path}"]
    subprocess.run([sys.executable, "-m", "grpc_tools.protoc", "-I.", *outputs, PROTO], cwd=ROOT, check=True)
    for suffix in ("_pb2.py", "_pb2.pyi"):
        generated = PROTO.replace(".proto", suffix)
        assert (tmp_path / generated).read_text() == (ROOT / generated).read_text(), "run `make proto`"

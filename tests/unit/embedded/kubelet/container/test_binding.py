"""Which ports the shim binds for a container."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from serving.data_dir import DataDir
from serving.embedded.kubelet.container import launch, port_binding
from serving.embedded.kubelet.node import Node
from serving.embedded.pod_spec.pod_identity import PodIdentity
from serving.resources import names
from serving.system.network import sockets

IDENTITY = PodIdentity("127.77.3.4", 70_001)
POD = {"metadata": {"annotations": {names.GATEWAY_PORT_ANNOTATION: "8080"}}}
CONTAINER = {"name": "main", "ports": [{"containerPort": 8080}]}


def binding(root: Path, container: dict[str, Any], *, binds_ports: bool = True) -> dict[str, Any] | None:
    node = cast("Node", SimpleNamespace(binds_ports=binds_ports, data_dir=DataDir(root)))
    return launch._binding(node, POD, container, IDENTITY)


def test_no_port_is_bound_where_the_kernel_cannot_notify_or_without_a_port(tmp_path: Path) -> None:
    assert binding(tmp_path, CONTAINER, binds_ports=False) is None
    assert binding(tmp_path, {"name": "main"}) is None


@pytest.mark.parametrize("missing", ["nothing", "up", "mark", "filter"])
def test_served_port_is_closed_where_the_gateway_marks_and_a_filter_can_be_attached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    monkeypatch.setattr(sockets, "can_mark", lambda: missing != "mark")
    monkeypatch.setattr(port_binding, "can_accept_only_marked", lambda _: missing != "filter")
    if missing != "up":
        DataDir(tmp_path).configuration.touch()
    spec = binding(tmp_path, CONTAINER)
    assert spec is not None
    assert spec["ports"] == [8080]
    assert spec["gateway_port"] == (8080 if missing == "nothing" else None)

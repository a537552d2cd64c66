"""Which ports of a Pod are TCP ports, and which of them its annotations name."""

import pytest

from serving.embedded.pod_spec import tcp_ports
from serving.embedded.pod_spec.pod_identity import PodIdentity
from serving.objects import Object
from serving.resources import names

IDENTITY = PodIdentity("127.77.3.4", 70_001, socket_port=8080)


def container(*ports: Object) -> Object:
    return {"name": "main", "ports": list(ports)}


def test_ports_are_those_of_tcp_without_the_port_of_the_unix_socket() -> None:
    first = container({"containerPort": 9000, "protocol": "TCP"}, {"containerPort": 53, "protocol": "UDP"})
    second = container({"containerPort": 8081}, {"containerPort": 8080}, {"containerPort": 9000})
    assert tcp_ports.of_container(first, IDENTITY) == [9000]
    assert tcp_ports.of_containers([first, second, {"name": "none"}], IDENTITY) == [8081, 9000]


@pytest.mark.parametrize(
    ("text", "port"),
    [
        ("8080", 8080),
        ("", None),
        ("0", None),
        ("65536", None),
        ("-1", None),
        ("http", None),
        pytest.param("9" * 5000, None, id="digits"),
    ],
)
def test_port_of_an_annotation_is_a_number_of_a_port_or_none(text: str, port: int | None) -> None:
    annotations = {names.GATEWAY_PORT_ANNOTATION: text, names.SOCKET_PORT_ANNOTATION: text}
    assert tcp_ports.gateway_port({"annotations": annotations}) == port
    assert tcp_ports.socket_port({"annotations": annotations}) == port
    assert tcp_ports.gateway_port({}) is None

"""Arms whose containers speak HTTP/2: their Service, their Route and their probe."""

from typing import Any

from serving.objects import Object
from tests.fakes.inference_world import InferenceWorld
from tests.fakes.surroundings import predictor


def arm(name: str, version: str, port: str, **fields: Any) -> Object:
    container = {"name": "predictor", "image": "mine", "ports": [{"name": port, "containerPort": 8080}]}
    return predictor(name, version, template={"containers": [container]}, **fields)


def protocols(world: InferenceWorld) -> dict[str, str]:
    """Return the protocol of each arm in the Route; it must be that of the Service."""
    assert world.route is not None
    result = {}
    for backend in world.route["spec"]["backends"]:
        (port,) = world.children["Service"][backend["service"]]["spec"]["ports"]
        protocol = backend.get("protocol", "http")
        assert (port["name"], port.get("appProtocol")) == (
            ("h2c", "kubernetes.io/h2c") if protocol == "h2c" else ("http", None)
        )
        result[backend["arm"]] = protocol
    return result


def test_route_and_service_have_the_protocol_of_each_arm() -> None:
    world = InferenceWorld(arm("plain", "v1", "http"), arm("own", "v1", "grpc"), framework="custom")
    world.settle()
    assert protocols(world) == {"plain": "http", "own": "h2c"}


def test_protocol_is_restored_with_a_deleted_route() -> None:
    world = InferenceWorld(arm("own", "v1", "h2c"), framework="custom")
    world.settle()
    world.children["Route"].clear()
    world.settle()
    assert protocols(world) == {"own": "h2c"}


def test_revision_of_another_protocol_replaces_the_old_one_after_its_probe() -> None:
    world = InferenceWorld(arm("own", "v1", "http"), framework="custom")
    world.settle()
    world.edit(arm("own", "v1", "http2"))
    world.settle()
    assert protocols(world) == {"own": "h2c"}
    assert len(world.deployments) == 1


def test_probe_of_an_arm_that_speaks_http2_is_a_call() -> None:
    world = InferenceWorld(arm("own", "v1", "grpc"), arm("plain", "v1", "http"), framework="custom")
    world.plan()
    world.accept()
    assert {(backend.get("protocol"), *backend["probe"]) for backend in world.served["backends"]} == {
        ("h2c", "/inference.GRPCInferenceService/ServerReady"),
        (None, "/v2/health/ready"),
    }

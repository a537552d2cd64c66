from typing import Any

from serving.resources.names import UNIX_PROTOCOL
from serving.resources.traffic_split import RING_UNITS
from serving.router.plan.service import Endpoint, gateway_service, socket_name
from tests.rig.servers.gateway import endpoint_slice, route


def plan_one(route_: dict[str, Any], **slices: list[dict[str, Any]]) -> Any:
    return gateway_service(route_, {name.replace("_", "-"): items for name, items in slices.items()})


def two_arms(**kwargs: Any) -> dict[str, Any]:
    return route("digits", [("stable", 9000), ("canary", 1000)], **kwargs)


def ready(service: str, *addresses: str) -> list[dict[str, Any]]:
    return [endpoint_slice(service, addresses)]


def test_weights_follow_segments_when_every_arm_is_ready() -> None:
    service = plan_one(
        two_arms(),
        digits_stable=ready("digits-stable", "127.77.0.2"),
        digits_canary=ready("digits-canary", "127.77.0.3"),
    )
    assert [(s.arm, s.size) for s in service.ring] == [("stable", 9000), ("canary", 1000)]
    assert service.arm_percentages == (("canary", 10.0), ("stable", 90.0))


def test_an_arm_without_ready_replicas_gives_its_share_to_the_others() -> None:
    service = plan_one(two_arms(), digits_canary=ready("digits-canary", "127.77.0.3"))
    assert [(s.arm, s.size) for s in service.ring] == [("stable", 0), ("canary", RING_UNITS)]
    assert service.arm_percentages == (("canary", 100.0), ("stable", 0.0))


def test_on_demand_arm_keeps_its_share_without_a_replica() -> None:
    digits = two_arms(on_demand=["stable"])
    service = plan_one(digits, digits_canary=ready("digits-canary", "127.77.0.3"))
    assert [(s.arm, s.size) for s in service.ring] == [("stable", 9000), ("canary", 1000)]
    assert service.arm_percentages == (("canary", 10.0), ("stable", 90.0))
    assert plan_one(two_arms(on_demand=["stable", "canary"])).unavailable == ""


def test_unproven_on_demand_arm_gets_no_share() -> None:
    service = plan_one(
        route("digits", [("stable", RING_UNITS)], unweighted=["next"], on_demand=["next"]),
        digits_stable=ready("digits-stable", "127.77.0.2"),
    )
    assert [(s.arm, s.size) for s in service.ring] == [("stable", RING_UNITS), ("next", 0)]


def test_cluster_socket_names_are_short_and_unique() -> None:
    names = [f"n{n}/{'s' * 60}{m}/8080" for n in range(20) for m in range(20)]
    sockets = {socket_name(name) for name in names}
    assert len(sockets) == len(names)
    assert {len(socket) for socket in sockets} == {12}


def test_endpoint_without_a_ready_condition_counts_as_ready() -> None:
    without_condition = endpoint_slice("digits-stable", ["127.77.0.2"])
    del without_condition["endpoints"][0]["conditions"]
    unready = [endpoint_slice("digits-canary", ["127.77.0.3"], ready=False)]
    service = plan_one(two_arms(), digits_stable=[without_condition], digits_canary=unready)
    assert {c.name.split("/")[1]: c.endpoints != () for c in service.clusters} == {
        "digits-stable": True,
        "digits-canary": False,
    }


def test_backend_without_weight_gets_no_traffic_when_others_are_unready() -> None:
    digits = route("digits", [("stable", RING_UNITS)], unweighted=["next"])
    service = plan_one(digits, digits_next=ready("digits-next", "127.77.0.9"))
    assert service.ring == ()
    assert service.unavailable == "no replica of this service is ready"
    assert [p.prefix for p in service.probes] == ["/default/digits-stable/", "/default/digits-next/"]


def test_service_without_segments_reports_that_nothing_is_proven() -> None:
    assert "proven" in plan_one(route("digits", [], unweighted=["stable"])).unavailable


def test_a_service_port_is_mapped_to_the_only_target_port() -> None:
    digits = route("digits", [("stable", RING_UNITS)], port=80)
    service = plan_one(digits, digits_stable=[endpoint_slice("digits-stable", ["127.77.0.2"], port=8080)])
    assert service.clusters[0].endpoints[0].port == 8080


def test_invalid_header_name_is_refused_with_its_path() -> None:
    for header in ("x user", "x-slipway-arm", "", ":authority"):
        problem = plan_one(two_arms(sticky={"header": header, "salt": "1"})).problem
        assert problem.startswith("spec.sticky.header"), header


def test_service_has_every_cluster_of_its_ring_and_probes() -> None:
    service = plan_one(two_arms(), digits_stable=ready("digits-stable", "127.77.0.2"))
    referenced = {s.cluster for s in service.ring} | {p.cluster for p in service.probes}
    assert referenced == {cluster.name for cluster in service.clusters}


def test_replica_is_reached_by_its_unix_socket_when_its_port_has_the_unix_protocol() -> None:
    slices = ready("digits-stable", "127.77.0.2")
    slices[0]["ports"][0]["appProtocol"] = UNIX_PROTOCOL
    service = plan_one(two_arms(), digits_stable=slices, digits_canary=ready("digits-canary", "127.77.0.3"))
    endpoints = {cluster.name.split("/")[1]: cluster.endpoints for cluster in service.clusters}
    assert endpoints["digits-stable"] == (Endpoint("127.77.0.2", 8080, unix=True),)
    assert endpoints["digits-stable"][0].socket == "127.77.0.2:8080"
    assert endpoints["digits-canary"] == (Endpoint("127.77.0.3", 8080),)


def test_protocol_of_a_backend_is_that_of_its_cluster_and_segments() -> None:
    digits = route("digits", [("stable", 9000), ("canary", 1000)], h2c=["canary"], on_demand=["canary"])
    service = plan_one(digits, digits_stable=ready("digits-stable", "127.77.0.2"))
    assert {cluster.name: cluster.h2c for cluster in service.clusters} == {
        "default/digits-stable/8080": False,
        "default/digits-canary/8080": True,
    }
    assert {segment.arm: segment.h2c for segment in service.ring} == {"stable": False, "canary": True}

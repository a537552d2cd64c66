"""The EndpointSlices of a Service's Pods."""

import copy
import itertools

from serving.embedded.workloads.endpoint_slice import plan
from serving.resources import names

SERVICE = {
    "metadata": {"name": "web", "namespace": "default", "uid": "s"},
    "spec": {"selector": {"app": "web"}, "ports": [{"name": "http", "port": 80, "targetPort": "serve"}]},
}


def pod(name: str, *, ready: bool = True, port: int = 8080, **status: object) -> dict:
    return {
        "metadata": {"name": name, "namespace": "default", "uid": name, "labels": {"app": "web"}},
        "spec": {"nodeName": "local", "containers": [{"ports": [{"name": "serve", "containerPort": port}]}]},
        "status": {
            "phase": "Running",
            "podIP": f"127.77.0.{len(name)}",
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
            **status,
        },
    }


def test_ready_pod_is_listed_with_its_address_and_named_port() -> None:
    (result,) = plan.slices(SERVICE, [pod("a")])
    assert result["metadata"]["name"] == "web-local"
    assert result["metadata"]["labels"]["kubernetes.io/service-name"] == "web"
    assert result["metadata"]["ownerReferences"][0]["uid"] == "s"
    assert result["ports"] == [{"name": "http", "port": 8080, "protocol": "TCP"}]
    (endpoint,) = result["endpoints"]
    assert endpoint["addresses"] == ["127.77.0.1"]
    assert endpoint["conditions"] == {"ready": True, "serving": True, "terminating": False}
    assert endpoint["targetRef"] == {"kind": "Pod", "name": "a", "namespace": "default", "uid": "a"}


def test_port_of_a_passed_socket_is_in_a_slice_of_its_own_during_a_change() -> None:
    passed = pod("b")
    passed["metadata"]["annotations"] = {names.SOCKET_PORT_ANNOTATION: "8080"}
    results = plan.slices(SERVICE, [pod("a"), passed])
    assert sorted(result["ports"][0].get("appProtocol", "") for result in results) == [
        "",
        names.UNIX_PROTOCOL,
    ]
    other = pod("c")
    other["metadata"]["annotations"] = {names.SOCKET_PORT_ANNOTATION: "9000"}
    (result,) = plan.slices(SERVICE, [other])
    assert "appProtocol" not in result["ports"][0]


def test_slices_have_exactly_the_labels_of_their_service() -> None:
    labelled = copy.deepcopy(SERVICE)
    labelled["metadata"]["labels"] = {"slipway.dev/on-demand": "true", "kubernetes.io/service-name": "a lie"}
    (with_label,) = plan.slices(labelled, [pod("a")])
    assert with_label["metadata"]["labels"]["slipway.dev/on-demand"] == "true"
    assert with_label["metadata"]["labels"]["kubernetes.io/service-name"] == "web"
    (without,) = plan.slices(SERVICE, [pod("a")])
    assert plan.same(without, copy.deepcopy(without))
    assert not plan.same(without, with_label)
    assert plan.is_urgent(with_label, without)


def test_terminating_pod_is_not_ready_though_it_serves() -> None:
    leaving = pod("a")
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    (result,) = plan.slices(SERVICE, [leaving])
    assert result["endpoints"][0]["conditions"] == {"ready": False, "serving": True, "terminating": True}


def test_pod_without_address_or_finished_is_excluded() -> None:
    (result,) = plan.slices(SERVICE, [pod("a", podIP=""), pod("b", phase="Succeeded")])
    assert result["endpoints"] == []


def test_unready_pod_is_ready_when_service_publishes_unready_addresses() -> None:
    service = copy.deepcopy(SERVICE)
    (result,) = plan.slices(service, [pod("a", ready=False)])
    assert result["endpoints"][0]["conditions"]["ready"] is False
    service["spec"]["publishNotReadyAddresses"] = True
    (result,) = plan.slices(service, [pod("a", ready=False)])
    assert result["endpoints"][0]["conditions"]["ready"] is True


def test_pods_that_resolve_a_port_differently_are_in_different_slices() -> None:
    result = plan.slices(SERVICE, [pod("a", port=8080), pod("b", port=9090)])
    assert [(s["ports"][0]["port"], len(s["endpoints"])) for s in result] == [(8080, 1), (9090, 1)]
    assert result[0]["metadata"]["name"] == "web-local"
    assert result[0]["metadata"]["name"] != result[1]["metadata"]["name"]


def test_numeric_target_port_is_the_service_port_where_absent() -> None:
    service = copy.deepcopy(SERVICE)
    service["spec"]["ports"] = [{"port": 80}, {"name": "m", "port": 90, "targetPort": 9100}]
    (result,) = plan.slices(service, [pod("a")])
    assert [(p["name"], p["port"]) for p in result["ports"]] == [("", 80), ("m", 9100)]


def test_service_without_selector_or_with_an_external_name_has_no_slices() -> None:
    for change in ({"selector": {}}, {"type": "ExternalName"}):
        service = {**SERVICE, "spec": {**SERVICE["spec"], **change}}
        assert plan.slices(service, [pod("a")]) == []


def test_order_of_pods_does_not_matter() -> None:
    first, second = pod("a"), pod("bb")
    assert plan.slices(SERVICE, [first, second]) == plan.slices(SERVICE, [second, first])


def test_relevant_parts_are_equal_when_a_probe_repeats_its_result() -> None:
    before = pod("a")
    after = copy.deepcopy(before)
    after["metadata"]["resourceVersion"] = "2"
    after["status"]["conditions"][0]["lastProbeTime"] = "2026-01-01T00:00:00Z"
    assert plan.relevant(before) == plan.relevant(after)
    after["status"]["conditions"][0]["status"] = "False"
    assert plan.relevant(before) != plan.relevant(after)


def slice_of(*pods: dict) -> dict:
    (result,) = plan.slices(SERVICE, pods)
    return result


def test_change_of_pods_that_do_not_serve_is_not_urgent() -> None:
    empty, unready, ready = slice_of(), slice_of(pod("a", ready=False)), slice_of(pod("a"))
    assert not plan.is_urgent(empty, None)
    assert not plan.is_urgent(unready, None)
    assert not plan.is_urgent(unready, empty)
    assert not plan.is_urgent(slice_of(pod("a"), pod("bb", ready=False)), ready)


def test_change_is_urgent_when_a_pod_begins_or_stops_serving() -> None:
    leaving = pod("a")
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    states = [slice_of(pod("a", ready=False)), slice_of(pod("a")), slice_of(leaving), slice_of()]
    for before, after in itertools.pairwise(states):
        assert plan.is_urgent(after, before)
    assert plan.is_urgent(states[1], None)


def test_change_is_urgent_when_the_service_was_recreated() -> None:
    recreated = copy.deepcopy(SERVICE)
    recreated["metadata"]["uid"] = "t"
    (result,) = plan.slices(recreated, [pod("a", ready=False)])
    assert plan.is_urgent(result, slice_of(pod("a", ready=False)))

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from serving.router.plan.route_table import RoutePlanChanges, RouteTable
from serving.router.plan.service import GatewayService, gateway_service
from tests.rig.servers.gateway import endpoint_slice, replaced, route


def service_named(
    name: str, created: str, address: str = "digits", *, up: bool = True, header: str = ""
) -> GatewayService:
    """Return the service of a Route with this name, creation time and address."""
    route_object = route(
        address, [("only", 10_000)], sticky={"header": header, "salt": "s"} if header else None
    )
    route_object["metadata"] |= {"name": name, "creationTimestamp": created}
    return gateway_service(
        route_object, {f"{address}-only": [endpoint_slice(f"{address}-only", ["127.77.0.2"] if up else [])]}
    )


def full_plan(services: dict[Any, GatewayService]) -> RoutePlanChanges:
    """Return the plan of all services in one change."""
    return replaced(RouteTable(), services.values())


_services = st.builds(
    service_named,
    st.sampled_from("abc"),
    st.sampled_from(["2026-01-01", "2026-01-02"]),
    st.sampled_from(["x", "y"]),
    up=st.booleans(),
    header=st.sampled_from(["", "x-user", "not a header"]),
)


@given(st.lists(st.one_of(_services, st.sampled_from("abc")), max_size=12), st.data())
def test_changes_add_up_to_the_current_routes(steps: list[Any], data: st.DataObject) -> None:
    table, merged = RouteTable(), RoutePlanChanges({}, {}, {}, {})
    services: dict[Any, GatewayService] = {}
    for step in steps:
        key = ("default", step if isinstance(step, str) else step.route)
        service = None if isinstance(step, str) else step
        table.put(key, service)
        services.pop(key, None)
        if service is not None:
            services[key] = service
        if data.draw(st.booleans()):
            _add(merged, table.take_changes(), services)
    _add(merged, table.take_changes(), services)
    assert merged == full_plan(services)


def _add(merged: RoutePlanChanges, change: RoutePlanChanges, services: dict[Any, GatewayService]) -> None:
    for part in ("services", "clusters", "probes", "routes"):
        table: dict[Any, Any] = getattr(merged, part)
        table.update(getattr(change, part))
        for name in [name for name, value in table.items() if value is None]:
            del table[name]
    for key in merged.routes.keys() - services.keys():
        del merged.routes[key]


def test_older_route_keeps_an_address_that_two_routes_claim() -> None:
    old, new = service_named("digits", "2026-01-01"), service_named("aaa", "2026-02-01")
    for services in ([old, new], [new, old]):
        table = RouteTable()
        plan = replaced(table, services)
        assert plan.services == {"/default/digits/": old}
        assert "already belongs to Route digits" in plan.routes["default", "aaa"]
        assert plan.routes["default", "digits"] == ""


def test_newer_route_gets_the_address_when_the_older_one_is_deleted() -> None:
    old, new = service_named("digits", "2026-01-01"), service_named("aaa", "2026-02-01", up=False)
    table = RouteTable()
    replaced(table, [old, new])
    table.put(("default", "digits"), None)
    plan = table.take_changes()
    assert plan.services == {"/default/digits/": new}
    assert plan.routes == {("default", "aaa"): ""}
    assert plan.clusters == {c.name: c for c in new.clusters}


def test_a_route_with_a_problem_is_left_out_with_its_reason() -> None:
    plan = replaced(RouteTable(), [service_named("digits", "2026-01-01", header="not a header")])
    assert (plan.services, plan.clusters) == ({}, {})
    assert plan.routes["default", "digits"].startswith("spec.sticky.header")

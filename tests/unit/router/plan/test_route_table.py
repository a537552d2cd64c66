from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from serving.router.plan.route_table import RoutePlan, RouteTable
from serving.router.plan.service import Service, service_of
from tests.rig.gateway import endpoint_slice, replaced, route


def named(name: str, created: str, address: str = "digits", *, up: bool = True, header: str = "") -> Service:
    """A Route of this name and age, for this address."""
    found = route(address, [("only", 10_000)], sticky={"header": header, "salt": "s"} if header else None)
    found["metadata"] |= {"name": name, "creationTimestamp": created}
    return service_of(
        found, {f"{address}-only": [endpoint_slice(f"{address}-only", ["127.77.0.2"] if up else [])]}
    )


def whole(services: dict[Any, Service]) -> RoutePlan:
    """All at once."""
    return replaced(RouteTable(), services.values())


_services = st.builds(
    named,
    st.sampled_from("abc"),
    st.sampled_from(["2026-01-01", "2026-01-02"]),
    st.sampled_from(["x", "y"]),
    up=st.booleans(),
    header=st.sampled_from(["", "x-user", "not a header"]),
)


@given(st.lists(st.one_of(_services, st.sampled_from("abc")), max_size=12), st.data())
def test_changes_add_up_to_what_is_there_whatever_came_before(steps: list[Any], data: st.DataObject) -> None:
    table, have = RouteTable(), RoutePlan({}, {}, {}, {})
    there: dict[Any, Service] = {}
    for step in steps:
        key = ("default", step if isinstance(step, str) else step.route)
        service = None if isinstance(step, str) else step
        table.put(key, service)
        there.pop(key, None)
        if service is not None:
            there[key] = service
        if data.draw(st.booleans()):
            _add(have, table.take_changes(), there)
    _add(have, table.take_changes(), there)
    assert have == whole(there)


def _add(have: RoutePlan, change: RoutePlan, there: dict[Any, Service]) -> None:
    for part in ("services", "clusters", "probes", "routes"):
        table: dict[Any, Any] = getattr(have, part)
        table.update(getattr(change, part))
        for name in [name for name, value in table.items() if value is None]:
            del table[name]
    for key in have.routes.keys() - there.keys():
        del have.routes[key]


def test_the_older_route_keeps_an_address_that_two_want() -> None:
    old, new = named("digits", "2026-01-01"), named("aaa", "2026-02-01")
    for services in ([old, new], [new, old]):
        table = RouteTable()
        plan = replaced(table, services)
        assert plan.services == {"/default/digits/": old}
        assert "already belongs to Route digits" in plan.routes["default", "aaa"]
        assert plan.routes["default", "digits"] == ""


def test_the_younger_route_gets_the_address_when_the_older_one_goes() -> None:
    old, new = named("digits", "2026-01-01"), named("aaa", "2026-02-01", up=False)
    table = RouteTable()
    replaced(table, [old, new])
    table.put(("default", "digits"), None)
    plan = table.take_changes()
    assert plan.services == {"/default/digits/": new}
    assert plan.routes == {("default", "aaa"): ""}
    assert plan.clusters == {c.name: c for c in new.clusters}


def test_a_route_with_a_problem_is_left_out_with_its_reason() -> None:
    plan = replaced(RouteTable(), [named("digits", "2026-01-01", header="not a header")])
    assert (plan.services, plan.clusters) == ({}, {})
    assert plan.routes["default", "digits"].startswith("spec.sticky.header")

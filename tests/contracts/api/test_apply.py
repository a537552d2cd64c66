"""Server-side apply: ownership, conflicts, removal of fields, keyed lists."""

from typing import Any

import pytest

from serving import errors
from serving.kube import Kube
from serving.resources import kinds
from tests.objects.contract_objects import inference, model


async def test_apply_creates_and_then_changes_nothing_when_repeated(kube: Kube, namespace: str) -> None:
    first = await kube.apply(kinds.INFERENCE, inference(namespace))
    second = await kube.apply(kinds.INFERENCE, inference(namespace))
    assert second["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]


async def test_apply_is_refused_with_the_field_when_it_is_unknown(kube: Kube, namespace: str) -> None:
    body = model(namespace)
    body["spec"]["descripton"] = "typo"
    with pytest.raises(errors.ApiError, match=r"spec\.descripton") as refused:
        await kube.apply(kinds.MODEL, body)
    assert refused.value.code in (400, 422)


async def test_apply_is_refused_with_the_owner_when_another_manager_owns_the_field(
    kube: Kube, namespace: str
) -> None:
    await kube.apply(kinds.MODEL, model(namespace), manager="alice")
    changed = model(namespace)
    changed["spec"]["description"] = "two"
    with pytest.raises(errors.Conflict) as caught:
        await kube.apply(kinds.MODEL, changed, manager="bob", force=False)
    assert "alice" in str(caught.value)
    assert ".spec.description" in {cause.field for cause in caught.value.causes}


async def test_field_changes_owner_when_apply_is_forced(kube: Kube, namespace: str) -> None:
    await kube.apply(kinds.MODEL, model(namespace), manager="alice")
    changed = model(namespace)
    changed["spec"]["description"] = "two"
    applied = await kube.apply(kinds.MODEL, changed, manager="bob", force=True)
    assert applied["spec"]["description"] == "two"
    with pytest.raises(errors.Conflict):
        await kube.apply(kinds.MODEL, model(namespace), manager="alice", force=False)


async def test_field_is_removed_when_its_only_manager_no_longer_applies_it(
    kube: Kube, namespace: str
) -> None:
    await kube.apply(kinds.MODEL, model(namespace, labels={"a": "1", "b": "2"}), manager="alice")
    applied = await kube.apply(kinds.MODEL, model(namespace, labels={"a": "1"}), manager="alice")
    assert applied["metadata"]["labels"] == {"a": "1"}


async def test_field_stays_when_another_manager_applies_it_too(kube: Kube, namespace: str) -> None:
    await kube.apply(kinds.MODEL, model(namespace, labels={"a": "1"}), manager="alice")
    await kube.apply(kinds.MODEL, model(namespace, labels={"a": "1"}), manager="bob")
    applied = await kube.apply(kinds.MODEL, model(namespace), manager="alice")
    assert applied["metadata"]["labels"] == {"a": "1"}


async def test_item_of_a_keyed_list_is_removed_when_its_manager_drops_it(kube: Kube, namespace: str) -> None:
    await kube.apply(kinds.INFERENCE, inference(namespace))
    single = inference(namespace, predictors=[{"name": "stable", "modelVersion": "v1", "trafficWeight": 90}])
    applied = await kube.apply(kinds.INFERENCE, single)
    assert [p["name"] for p in applied["spec"]["predictors"]] == ["stable"]


async def test_item_of_a_keyed_list_is_removed_as_a_whole_when_another_manager_has_one_of_its_fields(
    kube: Kube, namespace: str
) -> None:
    await kube.apply(kinds.INFERENCE, inference(namespace), manager="alice")
    weights = [
        {"name": "stable", "modelVersion": "v1", "trafficWeight": 50},
        {"name": "canary", "modelVersion": "v2", "trafficWeight": 50},
    ]
    patch = {"spec": {"predictors": weights}}
    await kube.patch(kinds.INFERENCE, namespace, "digits", patch)
    single = inference(namespace, predictors=[{"name": "stable", "modelVersion": "v1"}])
    applied = await kube.apply(kinds.INFERENCE, single, manager="alice", force=False)
    assert [(p["name"], p["trafficWeight"]) for p in applied["spec"]["predictors"]] == [("stable", 50)]
    assert not [entry for entry in applied["metadata"]["managedFields"] if "canary" in str(entry)]


async def test_item_of_a_keyed_list_stays_when_another_manager_applies_it_too(
    kube: Kube, namespace: str
) -> None:
    await kube.apply(kinds.INFERENCE, inference(namespace), manager="alice")
    canary = {"name": "canary", "modelVersion": "v2"}
    await kube.apply(kinds.INFERENCE, inference(namespace, predictors=[canary]), manager="bob")
    single = inference(namespace, predictors=[{"name": "stable", "modelVersion": "v1", "trafficWeight": 90}])
    applied = await kube.apply(kinds.INFERENCE, single, manager="alice")
    assert [(p["name"], p.get("modelVersion")) for p in applied["spec"]["predictors"]] == [
        ("stable", "v1"),
        ("canary", "v2"),
    ]


async def route_accepted_by_two(kube: Kube, namespace: str) -> dict[str, Any]:
    """Create a Route with status entries of the gateways a and b."""
    route = {"metadata": {"name": "r", "namespace": namespace}, "spec": {"inference": "r"}}
    await kube.apply(kinds.ROUTE, route)
    for gateway in ("a", "b"):
        status = {"gateways": [{"name": gateway, "acceptedGeneration": 1}]}
        await kube.apply_status(kinds.ROUTE, route, status, manager=f"slipway-gateway-{gateway}")
    return route


async def test_two_gateways_write_their_own_status_entries(kube: Kube, namespace: str) -> None:
    await route_accepted_by_two(kube, namespace)
    stored = await kube.get(kinds.ROUTE, namespace, "r")
    assert {g["name"] for g in stored["status"]["gateways"]} == {"a", "b"}


async def test_status_apply_does_not_change_the_spec(kube: Kube, namespace: str) -> None:
    await kube.apply(kinds.MODEL, model(namespace))
    await kube.apply_status(kinds.MODEL, model(namespace), {"versions": 2})
    stored = await kube.get(kinds.MODEL, namespace, "m")
    assert (
        stored["spec"]["description"],
        stored["status"]["versions"],
        stored["metadata"]["generation"],
    ) == (
        "one",
        2,
        1,
    )


async def test_map_stays_when_its_manager_applies_it_empty(kube: Kube, namespace: str) -> None:
    await kube.apply(kinds.MODEL, model(namespace))
    applied = await kube.apply(kinds.MODEL, {**model(namespace), "spec": {}})
    assert applied["spec"]["description"] == ""


async def test_list_that_the_schema_does_not_describe_is_atomic(kube: Kube, namespace: str) -> None:
    def with_arguments(*arguments: str) -> dict[str, Any]:
        template = {"containers": [{"name": "predictor", "args": list(arguments)}]}
        return inference(namespace, predictors=[{"name": "a", "modelVersion": "v", "template": template}])

    def arguments(obj: dict[str, Any]) -> list[str]:
        args: list[str] = obj["spec"]["predictors"][0]["template"]["containers"][0]["args"]
        return args

    await kube.apply(kinds.INFERENCE, with_arguments("-m", "x", "-m", "y"), manager="alice")
    with pytest.raises(errors.Conflict, match="alice"):
        await kube.apply(kinds.INFERENCE, with_arguments("-m", "z"), manager="bob", force=False)
    applied = await kube.apply(kinds.INFERENCE, with_arguments("-m", "z"), manager="bob")
    assert arguments(applied) == ["-m", "z"]
    with pytest.raises(errors.Conflict, match="bob"):
        await kube.apply(kinds.INFERENCE, with_arguments("-m", "x", "-m", "y"), manager="alice", force=False)


async def test_status_entry_is_removed_when_its_gateway_no_longer_applies_it(
    kube: Kube, namespace: str
) -> None:
    route = await route_accepted_by_two(kube, namespace)
    applied = await kube.apply_status(kinds.ROUTE, route, {}, manager="slipway-gateway-a")
    assert [entry["name"] for entry in applied["status"]["gateways"]] == ["b"]

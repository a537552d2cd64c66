"""Lists and watches: order of changes, selectors and pages."""

import asyncio
import contextlib

import pytest

from serving import errors
from serving.kube import Informer, Key, Kube
from serving.resources import kinds
from tests.objects.contract_objects import model


async def test_watch_delivers_every_change_of_concurrent_writers_in_order(kube: Kube, namespace: str) -> None:
    start = (await kube.list(kinds.MODEL, namespace)).resource_version

    async def write(name: str) -> None:
        await kube.create(kinds.MODEL, model(namespace, name))
        await kube.patch(kinds.MODEL, namespace, name, {"spec": {"description": "two"}})
        await kube.delete(kinds.MODEL, namespace, name)

    names = [f"m{n}" for n in range(20)]
    changes: list[tuple[str, str, int]] = []

    async def watch() -> None:
        async for event in kube.watch(kinds.MODEL, namespace, start):
            if event.type != "BOOKMARK":
                meta = event.object["metadata"]
                changes.append((meta["name"], event.type, int(meta["resourceVersion"])))
            if len(changes) == 3 * len(names):
                return

    async with asyncio.timeout(20):
        await asyncio.gather(watch(), *(write(name) for name in names))
    assert [version for *_, version in changes] == sorted(version for *_, version in changes)
    for name in names:
        assert [type_ for changed, type_, _ in changes if changed == name] == ["ADDED", "MODIFIED", "DELETED"]


async def test_object_leaves_a_selecting_watch_when_it_stops_matching(kube: Kube, namespace: str) -> None:
    created = await kube.create(kinds.MODEL, model(namespace, labels={"a": "1"}))
    await kube.patch(kinds.MODEL, namespace, "m", {"metadata": {"labels": {"a": "2"}}})
    events = kube.watch(kinds.MODEL, namespace, created["metadata"]["resourceVersion"], labels="a=1")
    async with asyncio.timeout(10), contextlib.aclosing(events):
        event = await anext(events)
    assert event.type == "DELETED"


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("a=1", {"x"}),
        ("a!=1", {"y", "z"}),
        ("a in (1,2)", {"x", "y"}),
        ("!a", {"z"}),
        ("a", {"x", "y"}),
        ("a notin (1)", {"y", "z"}),
    ],
)
async def test_label_selector_selects_as_kubernetes_does(
    kube: Kube, namespace: str, selector: str, names: set[str]
) -> None:
    for name, labels in (("x", {"a": "1"}), ("y", {"a": "2"}), ("z", {})):
        await kube.create(kinds.MODEL, model(namespace, name, labels=labels))
    listing = await kube.list(kinds.MODEL, namespace, labels=selector)
    assert {item["metadata"]["name"] for item in listing.items} == names


async def test_every_object_is_listed_once_when_listing_in_pages(kube: Kube, namespace: str) -> None:
    for number in range(7):
        await kube.create(kinds.MODEL, model(namespace, f"m{number}"))
    listing = await kube.list(kinds.MODEL, namespace, page_size=3)
    assert [item["metadata"]["name"] for item in listing.items] == [f"m{n}" for n in range(7)]


@pytest.mark.server_only("it has no pages: a list is one response")
async def test_pages_are_of_one_snapshot_during_other_writes(kube: Kube, namespace: str) -> None:
    path = kinds.MODEL.path(namespace)
    for number in range(4):
        await kube.create(kinds.MODEL, model(namespace, f"m{number}"))
    first_page = await kube.request("GET", path, query={"limit": "2"})
    assert first_page["metadata"]["remainingItemCount"] == 2
    await kube.delete(kinds.MODEL, namespace, "m2")
    await kube.create(kinds.MODEL, model(namespace, "m9"))
    continuation = first_page["metadata"]["continue"]
    second_page = await kube.request("GET", path, query={"limit": "2", "continue": continuation})
    assert [item["metadata"]["name"] for item in (*first_page["items"], *second_page["items"])] == [
        "m0",
        "m1",
        "m2",
        "m3",
    ]
    assert second_page["metadata"]["resourceVersion"] == first_page["metadata"]["resourceVersion"]
    assert not second_page["metadata"].get("continue")


async def test_selector_is_refused_when_malformed(kube: Kube, namespace: str) -> None:
    with pytest.raises(errors.ApiError) as caught:
        await kube.list(kinds.MODEL, namespace, labels="a in (")
    assert caught.value.code == 400


async def test_informer_converges_to_the_objects_of_the_api(kube: Kube, namespace: str) -> None:
    informer = Informer(kube, kinds.MODEL, namespace=namespace)
    informer.index("description", lambda obj: [obj["spec"]["description"]])
    task = asyncio.create_task(informer.run())
    try:
        async with asyncio.timeout(20):
            await informer.synced.wait()
            for number in range(10):
                await kube.create(kinds.MODEL, model(namespace, f"m{number}"))
            await kube.patch(kinds.MODEL, namespace, "m3", {"spec": {"description": "two"}})
            await kube.delete(kinds.MODEL, namespace, "m4")
            while len(informer.items) != 9 or len(informer.by_index("description", "two")) != 1:
                await asyncio.sleep(0.01)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert Key(namespace, "m4") not in informer.items
    assert informer.by_index("description", "two")[0]["metadata"]["name"] == "m3"
    assert len(informer.by_index("description", "one")) == 8

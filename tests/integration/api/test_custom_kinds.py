"""A server of other custom kinds than Slipway's: it has the kinds of its definitions, and no other."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from serving.data_dir import DataDir
from serving.embedded.apiserver.handlers import dispatcher
from serving.embedded.apiserver.handlers.dispatcher import Handlers
from serving.embedded.apiserver.handlers.nodes import Nodes
from serving.embedded.apiserver.handlers.objects import ObjectHandlers
from serving.embedded.apiserver.handlers.other_resources import OtherResources
from serving.embedded.apiserver.handlers.pod_usage import PodUsage
from serving.embedded.apiserver.handlers.request_metrics import RequestMetrics
from serving.embedded.apiserver.nodes.node_proxy import NodeProxy
from serving.embedded.apiserver.schema.stored_kinds import StoredKinds
from serving.embedded.apiserver.storage.database import Database
from serving.embedded.apiserver.storage.garbage_collector import GarbageCollector
from serving.embedded.apiserver.storage.history import ObjectKey
from serving.embedded.apiserver.storage.store import ObjectStore
from serving.embedded.apiserver.storage.watches import Hub
from serving.embedded.apiserver.storage.writer import ObjectWriter
from serving.objects import Object
from serving.resources import kinds
from serving.resources.base import Base
from serving.resources.definitions import Definition, PrinterColumn
from serving.resources.kinds import Kind
from serving.settings import ApiSettings
from tests.objects.config_maps import config_map


class WidgetSpec(Base):
    size: int


WIDGET = Kind("example.com", "v1", "Widget", "widgets", ("wi",), status=False)
DEFINITION = Definition(WIDGET, "A widget.", WidgetSpec, None, (PrinterColumn("Size", ".spec.size"),))
WIDGETS = "/apis/example.com/v1/namespaces/default/widgets"
TABLE = {"accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}


def widget(size: object = 3) -> Object:
    head = {"apiVersion": WIDGET.api_version, "kind": WIDGET.kind}
    return {**head, "metadata": {"name": "a"}, "spec": {"size": size}}


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[ObjectStore]:
    store = ObjectStore(Database(tmp_path / "db", epoch=1, history=50), StoredKinds((DEFINITION,)))
    await ObjectWriter(store).start()
    yield store
    await store.close()


@pytest.fixture
async def client(store: ObjectStore, tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    data_dir, hub, settings = DataDir(tmp_path / "data"), Hub(store), ApiSettings()
    proxy = NodeProxy(data_dir, "node")
    handlers = Handlers(
        objects=ObjectHandlers(ObjectWriter(store), hub, settings, data_dir),
        proxy=proxy,
        nodes=Nodes(store, hub, proxy, settings),
        usage=PodUsage(store, proxy),
        others=OtherResources(store, settings),
        metrics=RequestMetrics(store),
    )
    transport = httpx.ASGITransport(dispatcher.build(store.kinds, handlers))
    async with httpx.AsyncClient(transport=transport, base_url="http://api", verify=False) as client:
        yield client


async def test_a_custom_object_is_stored_by_its_schema_when_its_definition_is_given(
    client: httpx.AsyncClient,
) -> None:
    refused = (await client.post(WIDGETS, json=widget("large"))).json()
    assert [cause["field"] for cause in refused["details"]["causes"]] == ["spec.size"]
    created = (await client.post(WIDGETS, json=widget())).json()
    assert created["metadata"]["generation"] == 1
    table = (await client.get(WIDGETS, headers=TABLE)).json()
    assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "Size"]
    assert [row["cells"] for row in table["rows"]] == [["a", "3"]]
    unversioned = (await client.put(f"{WIDGETS}/a", json=widget(4))).json()
    assert [cause["field"] for cause in unversioned["details"]["causes"]] == ["metadata.resourceVersion"]
    strategic = {"content-type": "application/strategic-merge-patch+json"}
    assert (await client.patch(f"{WIDGETS}/a", json={}, headers=strategic)).status_code == 415


async def test_documents_have_the_given_kinds_and_no_other_custom_ones(client: httpx.AsyncClient) -> None:
    groups = [group["name"] for group in (await client.get("/apis")).json()["groups"]]
    assert {"example.com", "apps"} <= set(groups)
    assert kinds.GROUP not in groups
    index = (await client.get("/openapi/v3")).json()["paths"]
    assert "apis/example.com/v1" in index
    assert not [name for name in index if kinds.GROUP in name]
    described = (await client.get("/openapi/v3/apis/example.com/v1")).json()["components"]["schemas"]
    assert described["com.example.v1.Widget"]["properties"]["spec"]["properties"].keys() == {"size"}
    await client.get(WIDGETS)
    metrics = (await client.get("/metrics")).text
    assert 'resource="widgets"' in metrics
    assert kinds.GROUP not in metrics
    review = {"spec": {"resourceAttributes": {"group": kinds.GROUP, "resource": "models", "verb": "get"}}}
    answer = await client.post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", json=review)
    assert answer.json()["status"]["allowed"] is False


@pytest.mark.parametrize("kind", kinds.OWN, ids=lambda kind: kind.kind)
async def test_no_kind_of_slipway_is_stored_when_its_definition_is_not_given(
    client: httpx.AsyncClient, kind: Kind
) -> None:
    assert (await client.get(kind.path("default"))).status_code == 404


@pytest.mark.parametrize(("owner", "is_kept"), [(WIDGET, False), (kinds.MODEL, True)], ids=["given", "other"])
async def test_a_dependent_is_collected_when_its_absent_owner_is_of_a_given_kind(
    store: ObjectStore, owner: Kind, *, is_kept: bool
) -> None:
    def reference(kind: Kind) -> Object:
        return {"apiVersion": kind.api_version, "kind": kind.kind, "name": "gone", "uid": "gone"}

    # The collector takes the objects in order: that of the given kind, which it collects, is the last.
    for name, kind in (("dependent", owner), ("last", WIDGET)):
        body = config_map(name)
        body["metadata"] |= {"namespace": "default", "uid": name, "ownerReferences": [reference(kind)]}
        await store.submit(kinds.CONFIG_MAP, ObjectKey("default", name), body).committed()
    changed = asyncio.Event()
    store.on_change(lambda _: changed.set())
    collecting = asyncio.create_task(GarbageCollector(ObjectWriter(store), ApiSettings()).run())
    try:
        async with asyncio.timeout(10):
            while store.get(kinds.CONFIG_MAP, ObjectKey("default", "last")) is not None:
                await changed.wait()
                changed.clear()
    finally:
        collecting.cancel()
        await asyncio.gather(collecting, return_exceptions=True)
    assert (store.get(kinds.CONFIG_MAP, ObjectKey("default", "dependent")) is not None) is is_kept

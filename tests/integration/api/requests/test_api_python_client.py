"""The `kubernetes` Python client, sync and asyncio, against the embedded API server."""

import threading
import uuid
from collections.abc import Iterator
from typing import Any

import kubernetes
import pytest
from kubernetes import client, config, dynamic, watch

from serving import errors
from serving.data_dir import DataDir
from serving.kube import Informer, Key, connect
from serving.resources import kinds


@pytest.fixture
def api(api_server: DataDir) -> Iterator[client.ApiClient]:
    configuration = client.Configuration()
    config.load_kube_config(str(api_server.kubeconfig), client_configuration=configuration)
    api = client.ApiClient(configuration)
    yield api
    api.rest_client.pool_manager.clear()  # closes the connections, as `close` does not


@pytest.fixture
def namespace(api: client.ApiClient) -> str:
    name = f"p-{uuid.uuid4().hex[:8]}"
    client.CoreV1Api(api).create_namespace({"metadata": {"name": name}})
    return name


def job(name: str) -> dict[str, Any]:
    container = {"name": "main", "image": "slipway.dev/none", "command": ["true"]}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}},
    }


def test_typed_clients_create_read_list_and_delete(api: client.ApiClient, namespace: str) -> None:
    batch = client.BatchV1Api(api)
    created = batch.create_namespaced_job(namespace, job("train"))
    assert created.metadata.uid
    assert created.spec.backoff_limit == 6
    assert (
        batch.read_namespaced_job("train", namespace).metadata.resource_version
        == created.metadata.resource_version
    )
    assert [item.metadata.name for item in batch.list_namespaced_job(namespace).items] == ["train"]
    batch.delete_namespaced_job("train", namespace, propagation_policy="Background")
    with pytest.raises(client.ApiException) as refused:
        batch.read_namespaced_job("train", namespace)
    assert refused.value.status == 404


def test_a_stale_replace_is_a_conflict(api: client.ApiClient, namespace: str) -> None:
    core = client.CoreV1Api(api)
    old = core.create_namespaced_config_map(namespace, {"metadata": {"name": "a"}, "data": {"k": "1"}})
    old.data = {"k": "2"}
    core.replace_namespaced_config_map("a", namespace, old)
    with pytest.raises(client.ApiException) as refused:
        core.replace_namespaced_config_map("a", namespace, old)
    assert refused.value.status == 409


def test_typed_clients_read_the_node_and_what_they_may_do(api: client.ApiClient) -> None:
    (node,) = client.CoreV1Api(api).list_node().items
    assert node.metadata.name == "local"
    assert int(node.status.capacity["cpu"]) >= 1
    assert [condition.type for condition in node.status.conditions] == ["Ready"]
    attributes = {"verb": "create", "group": "batch", "resource": "jobs"}
    body = {"spec": {"resourceAttributes": attributes}}
    assert client.AuthorizationV1Api(api).create_self_subject_access_review(body).status.allowed
    reviewed = client.AuthenticationV1Api(api).create_self_subject_review({})
    assert reviewed.status.user_info.username == "slipway"
    assert client.AppsV1Api(api).list_replica_set_for_all_namespaces().items == []


def test_watch_and_dynamic_client_support_slipway_kinds(api: client.ApiClient, namespace: str) -> None:
    models = dynamic.DynamicClient(api).resources.get(api_version="slipway.dev/v1alpha1", kind="Model")
    custom = client.CustomObjectsApi(api)
    args = ("slipway.dev", "v1alpha1", namespace, "models")
    version = custom.list_namespaced_custom_object(*args)["metadata"]["resourceVersion"]
    body = {"apiVersion": "slipway.dev/v1alpha1", "kind": "Model", "metadata": {"name": "m"}, "spec": {}}
    threading.Timer(0.2, models.create, kwargs={"body": body, "namespace": namespace}).start()
    stream = watch.Watch().stream(
        custom.list_namespaced_custom_object, *args, resource_version=version, timeout_seconds=10
    )
    event = next(iter(stream))
    assert (event["type"], event["object"]["metadata"]["name"]) == ("ADDED", "m")
    assert kubernetes.__version__


async def test_slipways_client_applies_watches_and_reads_errors(api_server: DataDir, namespace: str) -> None:
    async with await connect(api_server.kubeconfig, component="test") as kube:
        model = {"metadata": {"name": "m", "namespace": namespace}, "spec": {"description": "one"}}
        first = await kube.apply(kinds.MODEL, model)
        second = await kube.apply(kinds.MODEL, model)
        assert second["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
        informer = Informer(kube, kinds.MODEL, namespace=namespace)
        import asyncio

        running = asyncio.create_task(informer.run())
        try:
            async with asyncio.timeout(10):
                await informer.synced.wait()
                assert informer.get(namespace, "m") is not None
                await kube.delete(kinds.MODEL, namespace, "m")
                while Key(namespace, "m") in informer.items:
                    await asyncio.sleep(0.01)
        finally:
            running.cancel()
        with pytest.raises(errors.Invalid) as refused:
            await kube.create(
                kinds.MODEL,
                {
                    "apiVersion": "slipway.dev/v1alpha1",
                    "kind": "Model",
                    "metadata": {"name": "Bad", "namespace": namespace},
                    "spec": {},
                },
            )
        assert refused.value.causes[0].field == "metadata.name"

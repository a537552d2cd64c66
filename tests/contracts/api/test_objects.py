"""Objects: versions, generations, conflicts, validation, patches, subresources."""

import asyncio

import pytest

from serving import errors
from serving.kube import Kube
from serving.objects import Object
from serving.resources import kinds
from serving.resources.kubernetes.patch_types import JSON_PATCH
from tests.objects.contract_objects import deployment, gone, inference, model


async def test_new_object_has_uid_generation_and_resource_version(kube: Kube, namespace: str) -> None:
    created = await kube.create(kinds.MODEL, model(namespace))
    meta = created["metadata"]
    assert meta["uid"]
    assert meta["generation"] == 1
    assert int(meta["resourceVersion"]) > 0
    assert meta["creationTimestamp"].endswith("Z")


async def test_create_is_refused_when_name_is_taken(kube: Kube, namespace: str) -> None:
    await kube.create(kinds.MODEL, model(namespace))
    with pytest.raises(errors.AlreadyExists):
        await kube.create(kinds.MODEL, model(namespace))


async def test_create_is_refused_when_namespace_does_not_exist(kube: Kube) -> None:
    with pytest.raises(errors.NotFound):
        await kube.create(kinds.MODEL, model("no-such-namespace"))


async def test_list_keeps_only_the_kept_fields_on_every_page(kube: Kube, namespace: str) -> None:
    for name in ("a", "b", "c"):
        await kube.create(kinds.MODEL, model(namespace, name))

    def keep(obj: Object) -> Object:
        return {"kind": obj["kind"], "name": obj["metadata"]["name"]}

    listing = await kube.list(kinds.MODEL, namespace, page_size=2, keep=keep)
    assert listing.items == [{"kind": "Model", "name": name} for name in ("a", "b", "c")]


async def test_null_fields_are_ignored(kube: Kube, namespace: str) -> None:
    created = await kube.create(kinds.MODEL, model(namespace, creationTimestamp=None, labels=None))
    assert created["metadata"]["creationTimestamp"]
    assert "labels" not in created["metadata"]


async def test_a_json_patch_is_refused_when_its_copies_double_the_object(kube: Kube, namespace: str) -> None:
    await kube.create(kinds.MODEL, model(namespace, annotations={"a": "x" * 1000}))
    bomb = [{"op": "copy", "from": "/metadata", "path": f"/metadata/x{n}"} for n in range(40)]
    with pytest.raises(errors.ApiError) as refused:
        await kube.patch(kinds.MODEL, namespace, "m", bomb, content_type=JSON_PATCH)
    assert refused.value.code == 422


async def test_an_integer_is_refused_when_it_does_not_fit_its_type(kube: Kube, namespace: str) -> None:
    with pytest.raises(errors.ApiError) as refused:
        await kube.create(
            kinds.LEASE,
            {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": "a", "namespace": namespace},
                "spec": {"leaseDurationSeconds": 2**31},
            },
        )
    assert refused.value.code in (400, 422)


async def test_name_is_generated_from_generate_name(kube: Kube, namespace: str) -> None:
    body = model(namespace)
    del body["metadata"]["name"]
    body["metadata"]["generateName"] = "gen-"
    created = await kube.create(kinds.MODEL, body)
    assert created["metadata"]["name"].startswith("gen-")


async def test_resource_version_grows_with_every_write(kube: Kube, namespace: str) -> None:
    first = await kube.create(kinds.MODEL, model(namespace, "a"))
    second = await kube.create(
        kinds.CONFIG_MAP, {"metadata": {"name": "c", "namespace": namespace}, "data": {"a": "b"}}
    )
    assert int(second["metadata"]["resourceVersion"]) > int(first["metadata"]["resourceVersion"])


async def test_generation_changes_only_with_the_spec(kube: Kube, namespace: str) -> None:
    await kube.create(kinds.MODEL, model(namespace))
    labelled = await kube.patch(kinds.MODEL, namespace, "m", {"metadata": {"labels": {"a": "b"}}})
    assert labelled["metadata"]["generation"] == 1
    changed = await kube.patch(kinds.MODEL, namespace, "m", {"spec": {"description": "two"}})
    assert changed["metadata"]["generation"] == 2


async def test_write_without_a_change_keeps_the_resource_version(kube: Kube, namespace: str) -> None:
    created = await kube.create(kinds.MODEL, model(namespace))
    patched = await kube.patch(kinds.MODEL, namespace, "m", {"spec": {"description": "one"}})
    assert patched["metadata"]["resourceVersion"] == created["metadata"]["resourceVersion"]


async def test_update_is_refused_when_resource_version_is_stale(kube: Kube, namespace: str) -> None:
    created = await kube.create(kinds.MODEL, model(namespace))
    await kube.patch(kinds.MODEL, namespace, "m", {"spec": {"description": "two"}})
    with pytest.raises(errors.Conflict):
        await kube.update(kinds.MODEL, created)


async def test_update_is_refused_without_a_resource_version(kube: Kube, namespace: str) -> None:
    await kube.create(kinds.MODEL, model(namespace))
    with pytest.raises(errors.Invalid, match=r"metadata\.resourceVersion"):
        await kube.update(kinds.MODEL, model(namespace))


@pytest.mark.server_only("it has no HTTP; its client sets apiVersion and kind")
async def test_create_is_refused_without_api_version_or_kind(kube: Kube, namespace: str) -> None:
    for missing, pattern in (("apiVersion", "(?i)api ?version"), ("kind", "(?i)kind")):
        body = {key: value for key, value in model(namespace).items() if key != missing}
        with pytest.raises(errors.ApiError, match=pattern) as refused:
            await kube.request("POST", kinds.MODEL.path(namespace), body=body)
        assert refused.value.code in (400, 422)


async def test_one_of_many_concurrent_writers_wins(kube: Kube, namespace: str) -> None:
    created = await kube.create(kinds.MODEL, model(namespace))

    async def write(number: int) -> bool:
        try:
            await kube.update(kinds.MODEL, {**created, "spec": {"description": str(number)}})
        except errors.Conflict:
            return False
        return True

    assert sum(await asyncio.gather(*(write(n) for n in range(10)))) == 1


@pytest.mark.parametrize(
    ("change", "field", "value"),
    [
        ({"predictors": []}, "spec.predictors", "0"),
        ({"framework": "fortran"}, "spec.framework", "fortran"),
        ({"predictors": [{"name": "A!", "modelVersion": "v1"}]}, "spec.predictors[0].name", "A!"),
        (
            {"predictors": [{"name": "a", "modelVersion": "v1", "trafficWeight": -1}]},
            "spec.predictors[0].trafficWeight",
            "-1",
        ),
        ({"predictors": [{"name": "a"}]}, "spec.predictors[0].modelVersion", "Required"),
        (
            {
                "predictors": [
                    {"name": "a", "modelVersion": "v", "autoScale": {"minReplicas": 3, "maxReplicas": 1}}
                ]
            },
            "spec.predictors[0].autoScale",
            "minReplicas must not be greater",
        ),
        (
            {"predictors": [{"name": "a", "modelVersion": "v"}, {"name": "a", "modelVersion": "w"}]},
            "spec.predictors[1]",
            "Duplicate value",
        ),
        (
            {"predictors": [{"name": "a", "modelVersion": "v", "resources": {"cpu": "1.5.2"}}]},
            "spec.predictors[0].resources.cpu",
            "1.5.2",
        ),
        (
            {"predictors": [{"name": "a", "modelVersion": "v", "batching": {"batchSize": 0}}]},
            "spec.predictors[0].batching.batchSize",
            "0",
        ),
        (
            {"predictors": [{"name": "a", "modelVersion": "v", "batching": {"batchSize": 1025}}]},
            "spec.predictors[0].batching.batchSize",
            "1025",
        ),
        (
            {"predictors": [{"name": "a", "modelVersion": "v", "batching": {"timeout": "2 ms"}}]},
            "spec.predictors[0].batching.timeout",
            "2 ms",
        ),
        (
            {"predictors": [{"name": "a", "modelVersion": "v", "batching": {"timeout": "10001ms"}}]},
            "spec.predictors[0].batching.timeout",
            "must be at most 10s",
        ),
        (
            {
                "framework": "custom",
                "predictors": [
                    {
                        "name": "a",
                        "modelVersion": "v",
                        "template": {"containers": [{"name": "predictor"}]},
                        "batching": {"batchSize": 2},
                    }
                ],
            },
            "spec",
            "framework custom does not batch",
        ),
        (
            {
                "predictors": [
                    {
                        "name": "a",
                        "modelVersion": "v",
                        "template": {"containers": [{"name": "predictor", "ports": "eight"}]},
                    }
                ]
            },
            "spec.predictors[0].template.containers[0].ports",
            "array",
        ),
        (
            {
                "predictors": [
                    {
                        "name": "a",
                        "modelVersion": "v",
                        "template": {"containers": [{"name": "predictor", "env": [{"value": "x"}]}]},
                    }
                ]
            },
            "spec.predictors[0].template.containers[0].env[0].name",
            "Required",
        ),
        (
            {
                "predictors": [
                    {
                        "name": "a",
                        "modelVersion": "v",
                        "template": {"containers": [{"name": "predictor", "image": ["i"]}]},
                    }
                ]
            },
            "spec.predictors[0].template.containers[0].image",
            "string",
        ),
    ],
)
async def test_invalid_object_is_refused_with_field_and_value_and_not_stored(
    kube: Kube, namespace: str, change: dict, field: str, value: str
) -> None:
    with pytest.raises(errors.Invalid) as caught:
        await kube.create(kinds.INFERENCE, inference(namespace, **change))
    assert caught.value.code == 422
    assert field in {cause.field for cause in caught.value.causes}
    assert value in str(caught.value)
    assert await gone(kube, kinds.INFERENCE, namespace, "digits")


async def test_create_is_refused_when_a_field_is_unknown(kube: Kube, namespace: str) -> None:
    body = model(namespace)
    body["spec"]["descripton"] = "typo"
    with pytest.raises(errors.ApiError, match=r"spec\.descripton") as refused:
        await kube.create(kinds.MODEL, body)
    assert refused.value.code in (400, 422)
    assert await gone(kube, kinds.MODEL, namespace, "m")


async def test_patch_is_refused_when_a_field_is_unknown(kube: Kube, namespace: str) -> None:
    created = await kube.create(kinds.MODEL, model(namespace))
    with pytest.raises(errors.ApiError, match=r"spec\.descripton") as refused:
        await kube.patch(kinds.MODEL, namespace, "m", {"spec": {"descripton": "typo"}})
    assert refused.value.code in (400, 422)
    assert await kube.get(kinds.MODEL, namespace, "m") == created


async def test_defaults_are_stored_when_fields_are_absent(kube: Kube, namespace: str) -> None:
    created = await kube.create(
        kinds.INFERENCE, inference(namespace, predictors=[{"name": "a", "modelVersion": "v"}])
    )
    (predictor,) = created["spec"]["predictors"]
    assert predictor["trafficWeight"] == 1
    assert predictor["autoScale"] == {
        "managed": True,
        "minReplicas": 1,
        "maxReplicas": 1,
        "prediction": {"mode": "Enabled"},
        "standby": 0,
    }


async def test_transition_rule_holds_when_an_immutable_spec_changes(kube: Kube, namespace: str) -> None:
    await kube.create(
        kinds.MODEL_VERSION,
        {
            "apiVersion": "slipway.dev/v1alpha1",
            "kind": "ModelVersion",
            "metadata": {"name": "v", "namespace": namespace},
            "spec": {"modelName": "m", "source": {"path": "/models/a"}},
        },
    )
    with pytest.raises(errors.Invalid, match="immutable"):
        await kube.patch(kinds.MODEL_VERSION, namespace, "v", {"spec": {"source": {"path": "/models/b"}}})


@pytest.mark.server_only("it has no dry runs, which no controller uses")
async def test_dry_run_responds_like_a_write_and_stores_nothing(kube: Kube, namespace: str) -> None:
    path, dry = kinds.MODEL.path(namespace), {"dryRun": "All", "fieldManager": "contract"}
    created = await kube.request("POST", path, body=model(namespace), query=dry)
    assert created["metadata"]["uid"]
    assert await gone(kube, kinds.MODEL, namespace, "m")
    stored = await kube.create(kinds.MODEL, model(namespace))
    merge = "application/merge-patch+json"
    change = {"spec": {"description": "two"}}
    changed = await kube.request("PATCH", f"{path}/m", body=change, query=dry, content_type=merge)
    assert (changed["spec"]["description"], changed["metadata"]["generation"]) == ("two", 2)
    await kube.request("DELETE", f"{path}/m", query={"dryRun": "All"})
    assert await kube.get(kinds.MODEL, namespace, "m") == stored


async def test_json_patch_is_refused_when_its_test_fails(kube: Kube, namespace: str) -> None:
    await kube.create(kinds.MODEL, model(namespace))
    patch = [
        {"op": "test", "path": "/spec/description", "value": "nine"},
        {"op": "remove", "path": "/spec/description"},
    ]
    with pytest.raises(errors.ApiError) as refused:
        await kube.patch(kinds.MODEL, namespace, "m", patch, content_type=JSON_PATCH)
    assert refused.value.code == 422
    assert (await kube.get(kinds.MODEL, namespace, "m"))["spec"]["description"] == "one"


async def test_status_and_spec_are_written_separately(kube: Kube, namespace: str) -> None:
    await kube.create(kinds.MODEL, model(namespace))
    await kube.patch(
        kinds.MODEL,
        namespace,
        "m",
        {"status": {"versions": 3}, "spec": {"description": "no"}},
        subresource="status",
    )
    await kube.patch(kinds.MODEL, namespace, "m", {"status": {"versions": 9}, "spec": {"description": "two"}})
    stored = await kube.get(kinds.MODEL, namespace, "m")
    assert (stored["status"]["versions"], stored["spec"]["description"]) == (3, "two")


async def test_zeros_of_a_probe_are_replaced_by_defaults(kube: Kube, namespace: str) -> None:
    probe = {"httpGet": {"port": 80}, "timeoutSeconds": 0, "periodSeconds": 0, "failureThreshold": 0}
    created = await kube.create(kinds.DEPLOYMENT, deployment(namespace, readinessProbe=probe))
    (container,) = created["spec"]["template"]["spec"]["containers"]
    stored_probe = container["readinessProbe"]
    assert (
        stored_probe["timeoutSeconds"],
        stored_probe["periodSeconds"],
        stored_probe["failureThreshold"],
    ) == (1, 10, 3)


async def test_scale_changes_only_the_replicas(kube: Kube, namespace: str) -> None:
    created = await kube.create(kinds.DEPLOYMENT, deployment(namespace))
    scale = await kube.patch(kinds.DEPLOYMENT, namespace, "d", {"spec": {"replicas": 2}}, subresource="scale")
    assert scale["kind"] == "Scale"
    stored = await kube.get(kinds.DEPLOYMENT, namespace, "d")
    assert stored["spec"] == {**created["spec"], "replicas": 2}

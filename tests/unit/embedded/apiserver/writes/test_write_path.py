"""Writes, from the body to the stored object."""

from typing import Any

import pytest

from serving import errors
from serving.embedded.apiserver.schema import schemas
from serving.embedded.apiserver.writes import scale, write_path
from serving.objects import Object
from serving.resources import kinds
from tests.objects.write_requests import NOW, create, deployment, inference, job, pod, request

MERGE = "application/merge-patch+json"


def patch(
    kind: kinds.Kind, old: dict[str, Any], change: Any, content_type: str = MERGE, **more: Any
) -> dict[str, Any]:
    return write_path.patch(kind, old, change, content_type, request(**more)).object


def refusal(kind: kinds.Kind, body: dict[str, Any], **more: Any) -> errors.ApiError:
    with pytest.raises(errors.ApiError) as caught:
        create(kind, body, **more)
    return caught.value


def test_create_sets_what_the_server_owns_and_drops_status() -> None:
    body = {**inference(), "status": {"url": "mine"}}
    body["metadata"] = {
        "name": "digits",
        "uid": "mine",
        "generation": 7,
        "creationTimestamp": "2000-01-01T00:00:00Z",
    }
    created = create(kinds.INFERENCE, body)
    assert "status" not in created
    meta = created["metadata"]
    assert (meta["uid"], meta["generation"], meta["creationTimestamp"]) == ("uid-1", 1, NOW)
    assert meta["namespace"] == "default"


@pytest.mark.parametrize("kind", kinds.ALL, ids=lambda kind: kind.kind)
def test_null_fields_are_dropped(kind: kinds.Kind) -> None:
    """The generators of kubectl (`run`, `expose`) send `creationTimestamp: null`."""
    body = {**BODIES[kind], **({"status": None} if kind.status else {})}
    body["metadata"] = {**body["metadata"], "creationTimestamp": None, "labels": None}
    assert create(kind, body) == create(kind, BODIES[kind])


@pytest.mark.parametrize("wrong", [True, 1.0])
def test_values_that_are_equal_only_in_python_are_validated(wrong: object) -> None:
    old = create(kinds.DEPLOYMENT, {**deployment(), "spec": {**deployment()["spec"], "replicas": 1}})
    for annotations in ({}, {"a": "b"}):
        change = {"metadata": {"annotations": annotations}, "spec": {"replicas": wrong}}
        with pytest.raises(errors.Invalid) as caught:
            patch(kinds.DEPLOYMENT, old, change)
        assert [cause.field for cause in caught.value.causes] == ["spec.replicas"]


@pytest.mark.parametrize("operation", ["update", "patch", "apply"])
def test_a_value_is_corrected_when_it_equals_the_old_one_only_in_python(operation: str) -> None:
    def body(value: object) -> Object:
        return inference(
            {"name": "stable", "modelVersion": "v1", "template": {"securityContext": {"runAsNonRoot": value}}}
        )

    kind, old, new = kinds.INFERENCE, create(kinds.INFERENCE, body(1)), body(value=True)
    if operation == "apply":
        result = write_path.apply(kind, old, "default", "digits", new, request(force=True)).object
    elif operation == "patch":
        result = patch(kind, old, new)
    else:
        result = write_path.update(kind, old, {**old, "spec": new["spec"]}, request()).object
    assert result["spec"]["predictors"][0]["template"]["securityContext"]["runAsNonRoot"] is True
    assert result["metadata"]["generation"] == old["metadata"]["generation"] + 1


def test_a_write_returns_the_old_object_when_only_the_order_of_keys_differs() -> None:
    old = create(kinds.DEPLOYMENT, deployment())
    reordered = {key: dict(reversed(old[key].items())) for key in ("metadata", "spec")}
    assert write_path.update(kinds.DEPLOYMENT, old, {**old, **reordered}, request()).object is old


def test_generate_name_gets_the_suffix() -> None:
    body = {**inference(), "metadata": {"generateName": "digits-"}}
    assert create(kinds.INFERENCE, body)["metadata"]["name"] == "digits-abcde"


@pytest.mark.parametrize("kind", kinds.ALL, ids=lambda kind: kind.kind)
def test_a_write_that_changes_nothing_returns_the_old_object(kind: kinds.Kind) -> None:
    old = create(kind, BODIES[kind])
    assert write_path.update(kind, old, old, request()).object == old
    assert patch(kind, old, {}) == old
    assert write_path.update(kind, old, schemas.clone(BODIES[kind]), request()).object == old


@pytest.mark.parametrize("kind", kinds.ALL, ids=lambda kind: kind.kind)
def test_a_second_apply_of_the_same_changes_nothing(kind: kinds.Kind) -> None:
    body, name = BODIES[kind], BODIES[kind]["metadata"]["name"]
    once = write_path.apply(kind, None, "default", name, body, request()).object
    assert write_path.apply(kind, once, "default", name, body, request()).object == once


def test_generation_counts_changes_of_the_spec_only() -> None:
    old = create(kinds.DEPLOYMENT, deployment())
    labelled = patch(kinds.DEPLOYMENT, old, {"metadata": {"labels": {"a": "b"}}})
    assert labelled["metadata"]["generation"] == 1
    scaled = patch(kinds.DEPLOYMENT, old, {"spec": {"replicas": 3}})
    assert scaled["metadata"]["generation"] == 2
    status = patch(kinds.DEPLOYMENT, old, {"status": {"replicas": 1}}, subresource="status")
    assert status["metadata"]["generation"] == 1


def test_a_status_write_changes_status_only_and_a_spec_write_never_does() -> None:
    old = create(kinds.INFERENCE, inference())
    change = {"spec": {"framework": "custom"}, "status": {"url": "here"}, "metadata": {"labels": {"a": "b"}}}
    status = patch(kinds.INFERENCE, old, change, subresource="status")
    assert status["spec"] == old["spec"]
    assert status["status"] == {
        **status["status"],
        "url": "here",
    }
    assert "labels" not in status["metadata"]
    after = patch(kinds.INFERENCE, status, {"status": {"url": "elsewhere"}})
    assert after["status"]["url"] == "here"


def test_a_stale_resource_version_is_a_conflict() -> None:
    old = create(kinds.INFERENCE, inference())
    stale = {**inference(), "metadata": {"name": "digits", "resourceVersion": "0"}}
    with pytest.raises(errors.Conflict):
        write_path.update(kinds.INFERENCE, old, stale, request())


def test_the_scale_subresource_reads_and_writes_replicas() -> None:
    old = create(kinds.DEPLOYMENT, deployment(replicas=2))
    view = scale.to_scale(kinds.DEPLOYMENT, old)
    assert (view["spec"]["replicas"], view["status"]["selector"]) == (2, "app=web")
    put = {**view, "spec": {"replicas": 5}}
    after = write_path.update(kinds.DEPLOYMENT, old, put, request(subresource="scale")).object
    assert after["spec"]["replicas"] == 5
    assert (
        patch(kinds.DEPLOYMENT, old, {"spec": {"replicas": 6}}, subresource="scale")["spec"]["replicas"] == 6
    )
    body = {"apiVersion": "autoscaling/v1", "kind": "Scale", "spec": {"replicas": 7}}
    applied = write_path.apply(
        kinds.DEPLOYMENT, old, "default", "web", body, request("as", subresource="scale", force=True)
    )
    assert applied.object["spec"]["replicas"] == 7
    with pytest.raises(errors.Invalid, match="must be of type integer"):
        patch(kinds.DEPLOYMENT, old, {"spec": {"replicas": "x"}}, subresource="scale")


@pytest.mark.parametrize(
    ("meta", "code"),
    [
        ({"resourceVersion": "0"}, 409),
        ({"uid": "another"}, 409),
        ({"name": "another"}, 400),
        ({"namespace": "another"}, 400),
    ],
    ids=lambda value: next(iter(value), None) if isinstance(value, dict) else None,
)
def test_apply_of_a_scale_is_refused_when_its_metadata_is_not_the_objects(
    meta: dict[str, str], code: int
) -> None:
    old = create(kinds.DEPLOYMENT, deployment(replicas=2))
    body = scale.to_scale(kinds.DEPLOYMENT, old)
    options = request("as", subresource="scale", force=True)
    body["spec"]["replicas"] = 7
    applied = write_path.apply(kinds.DEPLOYMENT, old, "default", "web", body, options).object
    assert applied["spec"]["replicas"] == 7
    body["metadata"] |= meta
    with pytest.raises(errors.ApiError) as refused:
        write_path.apply(kinds.DEPLOYMENT, old, "default", "web", body, options)
    assert refused.value.code == code


def test_unknown_fields_are_refused_reported_or_dropped() -> None:
    body = inference({"name": "a", "modelVersion": "v", "foo": 1})
    error = refusal(kinds.INFERENCE, body)
    assert error.code == 400
    assert 'strict decoding error: unknown field "spec.predictors[0].foo"' in error.message
    for how, warnings in (("Warn", ('unknown field "spec.predictors[0].foo"',)), ("Ignore", ())):
        outcome = write_path.create(kinds.INFERENCE, "default", body, request(field_validation=how))
        assert outcome.warnings == warnings
        assert "foo" not in outcome.object["spec"]["predictors"][0]


CASES = [
    (
        kinds.INFERENCE,
        inference({"name": "a", "modelVersion": "v", "trafficWeight": -1}),
        "spec.predictors[0].trafficWeight",
        "Invalid value: -1: spec.predictors[0].trafficWeight in body should be greater than or equal to 0",
    ),
    (kinds.INFERENCE, inference({"name": "a"}), "spec.predictors[0].modelVersion", "Required value"),
    (
        kinds.INFERENCE,
        inference({"name": "a", "modelVersion": "v"}, {"name": "a", "modelVersion": "v"}),
        "spec.predictors[1]",
        'Duplicate value: {"name":"a"}',
    ),
    (
        kinds.INFERENCE,
        inference({"name": "a", "modelVersion": "v", "resources": {"gpu": {"cores": 5, "mechanism": "x"}}}),
        "spec.predictors[0].resources.gpu.mechanism",
        'Unsupported value: "x": supported values: "auto", "mps"',
    ),
    (
        kinds.INFERENCE,
        {**inference(), "spec": {**inference()["spec"], "framework": "x"}},
        "spec.framework",
        'Invalid value: "x"',
    ),
    (
        kinds.INFERENCE,
        inference({"name": "a", "modelVersion": "v", "trafficWeight": 0}),
        "spec",
        "at least one predictor",
    ),
    (kinds.INFERENCE, {**inference(), "metadata": {"name": "No"}}, "metadata.name", "RFC 1123"),
    (
        kinds.INFERENCE,
        {**inference(), "metadata": {"name": "x", "labels": {"a": "-"}}},
        "metadata.labels",
        "valid label",
    ),
    (
        kinds.INFERENCE,
        {**inference(), "metadata": {"name": "x", "labels": ["a"]}},
        "metadata.labels",
        "must be of type object",
    ),
    (kinds.DEPLOYMENT, deployment(selector={}), "spec.selector", "empty selector"),
    (
        kinds.DEPLOYMENT,
        deployment(selector={"matchLabels": {"app": "other"}}),
        "spec.template.metadata.labels",
        "does not match",
    ),
    (kinds.DEPLOYMENT, deployment(replicas=-1), "spec.replicas", "greater than or equal to 0"),
    (
        kinds.DEPLOYMENT,
        deployment(strategy={"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 0}}),
        "spec.strategy.rollingUpdate.maxUnavailable",
        "may not be 0",
    ),
    (kinds.JOB, job(completionMode="Indexed"), "spec.completionMode", "Unsupported value"),
    (
        kinds.JOB,
        {"metadata": {"name": "a"}, "spec": {"template": pod()}},
        "spec.template.spec.restartPolicy",
        "Unsupported value",
    ),
    (
        kinds.POD,
        pod(volumes=[{"name": "v", "nfs": {"server": "a", "path": "/"}}]),
        "spec.volumes[0].nfs",
        "volumes here are",
    ),
    (
        kinds.POD,
        pod(containers=[{"name": "a", "image": "b", "volumeMounts": [{"name": "x", "mountPath": "/x"}]}]),
        "spec.containers[0].volumeMounts[0].name",
        "Not found",
    ),
    (
        kinds.POD,
        pod(containers=[{"name": "a", "image": "b", "resources": {"limits": {"cpu": "much"}}}]),
        "spec.containers[0].resources.limits.cpu",
        "quantities must match",
    ),
    (kinds.SECRET, {"metadata": {"name": "a"}, "data": {"k": "%%"}}, "data.k", "must be base64"),
    (kinds.SERVICE, {"metadata": {"name": "a"}, "spec": {"type": "NodePort"}}, "spec.type", "only ClusterIP"),
    (
        kinds.ENDPOINT_SLICE,
        {"metadata": {"name": "a"}, "addressType": "IPv4", "endpoints": [{"addresses": ["x"]}]},
        "endpoints[0].addresses[0]",
        "valid IPv4",
    ),
]


@pytest.mark.parametrize(("kind", "body", "field", "message"), CASES, ids=lambda value: str(value)[:40])
def test_the_error_of_a_broken_rule_has_path_rule_and_value(
    kind: kinds.Kind, body: dict[str, Any], field: str, message: str
) -> None:
    error = refusal(kind, body)
    assert error.code == 422
    assert field in [cause.field for cause in error.causes]
    assert any(message in cause.message for cause in error.causes if cause.field == field)


def test_an_empty_namespace_or_uid_in_a_body_counts_as_unset() -> None:
    for kind, body in ((kinds.POD, pod()), (kinds.NAMESPACE, {"metadata": {"name": "web"}})):
        old = create(kind, body)
        empty = {"name": "web", "namespace": "", "uid": ""}
        created = create(kind, {**body, "metadata": {"name": "web", "namespace": ""}})
        assert created["metadata"] == old["metadata"]
        assert write_path.update(kind, old, {**body, "metadata": empty}, request()).object == old
        assert patch(kind, old, {"metadata": {"namespace": "", "uid": ""}}) == old
        namespace = old["metadata"].get("namespace")
        applied = write_path.apply(kind, old, namespace, "web", {"metadata": empty}, request()).object
        assert applied["metadata"].get("namespace") == namespace
        with pytest.raises(errors.ApiError, match="does not match the namespace"):
            write_path.update(kind, old, {**body, "metadata": {**empty, "namespace": "b"}}, request())


def test_all_broken_rules_are_reported_together() -> None:
    error = refusal(kinds.INFERENCE, inference({"name": "A", "modelVersion": "", "trafficWeight": -1}))
    assert len(error.causes) >= 3


def test_a_transition_rule_holds_on_update_only() -> None:
    body = {"metadata": {"name": "v1"}, "spec": {"modelName": "digits", "source": {"path": "/a"}}}
    old = create(kinds.MODEL_VERSION, body)
    with pytest.raises(errors.Invalid, match="immutable"):
        patch(kinds.MODEL_VERSION, old, {"spec": {"source": {"path": "/b"}}})


def test_changes_of_immutable_fields_of_built_in_kinds_are_refused() -> None:
    created_job, running = create(kinds.JOB, job()), create(kinds.POD, pod())
    with pytest.raises(errors.Invalid, match=r"spec.template: .*field is immutable"):
        patch(kinds.JOB, created_job, {"spec": {"template": {"metadata": {"labels": {"x": "y"}}}}})
    with pytest.raises(errors.Invalid, match="pod updates may not change fields"):
        patch(kinds.POD, running, {"spec": {"hostname": "x"}})
    assert patch(kinds.POD, create(kinds.POD, pod()), {"spec": {"nodeName": "n"}})["spec"]["nodeName"] == "n"


def test_pod_is_bound_when_its_node_name_is_empty() -> None:
    unbound = create(kinds.POD, pod(nodeName=""))
    assert patch(kinds.POD, unbound, {"spec": {"nodeName": "n"}})["spec"]["nodeName"] == "n"


def test_defaults_are_those_of_kube_apiserver() -> None:
    spec = create(kinds.DEPLOYMENT, deployment())["spec"]
    assert spec["strategy"] == {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"},
    }
    assert (spec["replicas"], spec["revisionHistoryLimit"], spec["progressDeadlineSeconds"]) == (1, 10, 600)
    made = create(kinds.JOB, job())
    assert made["spec"]["backoffLimit"] == 6
    assert made["spec"]["selector"] == {"matchLabels": {"batch.kubernetes.io/controller-uid": "uid-1"}}
    assert made["spec"]["template"]["metadata"]["labels"]["batch.kubernetes.io/job-name"] == "train"
    secret = create(kinds.SECRET, {"metadata": {"name": "s"}, "stringData": {"a": "b"}})
    assert secret["data"] == {"a": "Yg=="}
    assert "stringData" not in secret
    service = create(kinds.SERVICE, {"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}})
    assert service["spec"]["ports"] == [{"port": 80, "protocol": "TCP", "targetPort": 80}]


def limited(cpu: str) -> dict[str, Any]:
    """Return a container with a limit, and without requests."""
    return {"name": "main", "image": "web:1", "resources": {"limits": {"cpu": cpu}}}


def test_a_limit_of_a_template_can_be_lowered_where_it_has_no_requests() -> None:
    def with_limit(cpu: str) -> dict[str, Any]:
        template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [limited(cpu)]}}
        return deployment(template=template)

    old = write_path.apply(kinds.DEPLOYMENT, None, "default", "web", with_limit("2"), request()).object
    new = write_path.apply(kinds.DEPLOYMENT, old, "default", "web", with_limit("1"), request()).object
    assert new["spec"]["template"]["spec"]["containers"][0]["resources"] == {"limits": {"cpu": "1"}}


def test_requests_of_a_pod_are_its_limits_where_it_has_none() -> None:
    spec = create(kinds.POD, pod(containers=[limited("2")], initContainers=[{**limited("1"), "name": "i"}]))[
        "spec"
    ]
    assert spec["containers"][0]["resources"] == {"limits": {"cpu": "2"}, "requests": {"cpu": "2"}}
    assert spec["initContainers"][0]["resources"] == {"limits": {"cpu": "1"}, "requests": {"cpu": "1"}}


@pytest.mark.parametrize("field", ["containers", "initContainers"])
def test_an_update_of_a_pod_is_refused_when_an_image_is_empty(field: str) -> None:
    old = create(kinds.POD, pod(initContainers=[{"name": "i", "image": "web:1"}]))
    change = [{"op": "replace", "path": f"/spec/{field}/0/image", "value": ""}]
    with pytest.raises(errors.Invalid) as caught:
        patch(kinds.POD, old, change, "application/json-patch+json")
    assert [(cause.field, cause.message) for cause in caught.value.causes] == [
        (f"spec.{field}[0].image", "Required value")
    ]


def test_invalid_patches_are_refused() -> None:
    old = create(kinds.INFERENCE, inference())
    for change, media_type, code in (
        ({}, "application/strategic-merge-patch+json", 415),
        ({}, "text/plain", 415),
        ({}, "application/json-patch+json", 400),
        ([{"op": "remove", "path": "/spec/nothing"}], "application/json-patch+json", 422),
        ([], MERGE, 400),
    ):
        with pytest.raises(errors.ApiError) as caught:
            patch(kinds.INFERENCE, old, change, media_type)
        assert caught.value.code == code


def test_a_json_patch_of_managed_fields_moves_ownership() -> None:
    """Kubectl sends one when it changes from client-side to server-side apply."""
    old = create(kinds.DEPLOYMENT, deployment(replicas=2), manager="kubectl-client-side-apply")
    entry = {**old["metadata"]["managedFields"][0], "manager": "kubectl", "operation": "Apply"}
    moved = patch(
        kinds.DEPLOYMENT,
        old,
        [{"op": "replace", "path": "/metadata/managedFields", "value": [entry]}],
        "application/json-patch+json",
        manager="kubectl",
    )
    body = deployment(replicas=4)
    after = write_path.apply(kinds.DEPLOYMENT, moved, "default", "web", body, request("kubectl")).object
    assert after["spec"]["replicas"] == 4


def test_a_conflicting_apply_is_refused_with_its_conflicts() -> None:
    old = create(kinds.DEPLOYMENT, deployment(replicas=2), manager="kubectl")
    with pytest.raises(errors.Conflict) as caught:
        write_path.apply(kinds.DEPLOYMENT, old, "default", "web", {"spec": {"replicas": 3}}, request("me"))
    assert caught.value.message == (
        'Apply failed with 1 conflict: conflict with "kubectl" using apps/v1: .spec.replicas'
    )


def test_two_gateways_apply_their_own_status_entries() -> None:
    body = {"metadata": {"name": "r"}, "spec": {"inference": "r"}}
    obj = create(kinds.ROUTE, body)
    for name in ("one", "two"):
        status = {"status": {"gateways": [{"name": name, "acceptedGeneration": 1}]}}
        options = request(f"gateway-{name}", subresource="status")
        obj = write_path.apply(kinds.ROUTE, obj, "default", "r", status, options).object
    assert [entry["name"] for entry in obj["status"]["gateways"]] == ["one", "two"]
    gone = {"status": {}}
    obj = write_path.apply(
        kinds.ROUTE, obj, "default", "r", gone, request("gateway-one", subresource="status")
    ).object
    assert [entry["name"] for entry in obj["status"]["gateways"]] == ["two"]


BODIES: dict[kinds.Kind, dict[str, Any]] = {
    kinds.MODEL: {"metadata": {"name": "a"}, "spec": {}},
    kinds.MODEL_VERSION: {"metadata": {"name": "a"}, "spec": {"modelName": "a", "source": {"path": "/a"}}},
    kinds.INFERENCE: inference(),
    kinds.ROUTE: {"metadata": {"name": "a"}, "spec": {"inference": "a"}},
    kinds.AUTOSCALER: {"metadata": {"name": "a"}, "spec": {"scaleTargetRef": {"name": "a"}}},
    kinds.PROFILING_EXPERIMENT: {
        "metadata": {"name": "a"},
        "spec": {
            "target": {"inference": "a"},
            "tunableParameters": [
                {"category": "env", "parameters": [{"name": "A", "feasibleSpace": {"list": ["1", "2"]}}]},
            ],
        },
    },
    kinds.TRIAL: {
        "metadata": {"name": "a"},
        "spec": {
            "experiment": "e",
            "number": 1,
            "template": {"spec": {}},
            "modelName": "m",
            "settings": [{"category": "env", "name": "A", "value": "1"}],
        },
    },
    kinds.CAPACITY_PROFILE: {
        "metadata": {"name": "a"},
        "spec": {
            "modelDigest": "sha256:0",
            "points": [{"level": 1, "throughput": 2}],
        },
    },
    kinds.NAMESPACE: {"metadata": {"name": "a"}},
    kinds.SERVICE: {"metadata": {"name": "a"}, "spec": {"ports": [{"port": 80}]}},
    kinds.POD: pod(),
    kinds.CONFIG_MAP: {"metadata": {"name": "a"}, "data": {"a": "b"}},
    kinds.SECRET: {"metadata": {"name": "a"}, "data": {"a": "Yg=="}},
    kinds.EVENT_V1: {
        "metadata": {"name": "a"},
        "involvedObject": {"kind": "Job", "name": "a", "namespace": "default"},
        "reason": "Done",
    },
    kinds.DEPLOYMENT: deployment(),
    kinds.JOB: job(),
    kinds.ENDPOINT_SLICE: {
        "metadata": {"name": "a"},
        "addressType": "IPv4",
        "endpoints": [{"addresses": ["127.77.0.1"]}],
    },
    kinds.LEASE: {"metadata": {"name": "a"}, "spec": {"holderIdentity": "me"}},
}

"""Values that a typed client cannot send, but any HTTP client can."""

from typing import Any

import pytest

from serving import errors
from serving.embedded.apiserver.writes import strategic_merge, write_path
from serving.resources import kinds
from tests.objects.write_requests import create, deployment, inference, job, pod, request


@pytest.mark.parametrize("replicas", [2**31, -(2**31) - 1, 1e30, 2.0, 0.5, True])
def test_numbers_out_of_range_are_refused_with_path_rule_and_value(replicas: Any) -> None:
    with pytest.raises(errors.Invalid) as refused:
        create(kinds.DEPLOYMENT, deployment(replicas=replicas))
    (cause,) = [c for c in refused.value.causes if "replicas" in c.field]
    assert cause.field == "spec.replicas"
    assert "int32" in cause.message or "of type integer" in cause.message


def test_int64_fields_accept_64_bits() -> None:
    assert create(kinds.JOB, job(activeDeadlineSeconds=2**40))["spec"]["activeDeadlineSeconds"] == 2**40
    with pytest.raises(errors.Invalid, match="int64"):
        create(kinds.JOB, job(activeDeadlineSeconds=2**63))


@pytest.mark.parametrize("renewed", ["soon", "2026-01-01", "2026-01-01T00:00:00", "20260101T000000Z"])
def test_a_lease_is_refused_with_its_path_when_its_time_is_not_rfc_3339(renewed: str) -> None:
    with pytest.raises(errors.Invalid) as refused:
        create(kinds.LEASE, {"metadata": {"name": "a"}, "spec": {"renewTime": renewed}})
    (cause,) = refused.value.causes
    assert cause.field == "spec.renewTime"
    assert cause.message == f'Invalid value: "{renewed}": must be an RFC 3339 date and time'


@pytest.mark.parametrize("zone", ["Z", "+05:30", "-00:00"])
def test_a_lease_is_taken_when_its_time_has_a_zone(zone: str) -> None:
    spec = {"renewTime": f"2026-01-01T00:00:00.000001{zone}"}
    assert create(kinds.LEASE, {"metadata": {"name": "a"}, "spec": spec})["spec"] == spec


def test_a_quantity_is_refused_with_its_path_when_its_exponent_is_large() -> None:
    owner = deployment()
    owner["spec"]["template"]["spec"]["containers"][0]["resources"] = {"limits": {"memory": "1e99999999"}}
    with pytest.raises(errors.Invalid) as refused:
        create(kinds.DEPLOYMENT, owner)
    assert [cause.field for cause in refused.value.causes] == [
        "spec.template.spec.containers[0].resources.limits.memory"
    ]
    arm = {"name": "stable", "modelVersion": "v1", "resources": {"memory": "1e99999999"}}
    with pytest.raises(errors.Invalid, match=r"resources\.memory"):
        create(kinds.INFERENCE, inference(arm))


@pytest.mark.parametrize("grace", [-1, 2**31, 999_999_999_999, 2**63 - 1])
def test_a_grace_period_that_leads_to_no_date_is_refused_with_its_path(grace: int) -> None:
    owner = deployment()
    owner["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = grace
    with pytest.raises(errors.Invalid) as refused:
        create(kinds.DEPLOYMENT, owner)
    assert [cause.field for cause in refused.value.causes] == [
        "spec.template.spec.terminationGracePeriodSeconds"
    ]
    with pytest.raises(errors.Invalid, match=r"spec\.terminationGracePeriodSeconds"):
        create(kinds.POD, pod(terminationGracePeriodSeconds=grace))


@pytest.mark.parametrize(
    ("options", "path"),
    [
        ({"preconditions": True}, "preconditions"),
        ({"propagationPolicy": {}}, "propagationPolicy"),
        ({"gracePeriodSeconds": "soon"}, "gracePeriodSeconds"),
        ({"gracePeriodSeconds": -1}, "gracePeriodSeconds"),
        ({"gracePeriodSeconds": 2**31}, "gracePeriodSeconds"),
        ({"orphanDependents": 1}, "orphanDependents"),
        ({"preconditions": {"uid": 1}}, "preconditions.uid"),
        ({"gracePeriod": 1}, "gracePeriod"),
    ],
)
def test_delete_options_of_the_wrong_type_are_refused_with_their_path(
    options: dict[str, Any], path: str
) -> None:
    with pytest.raises(errors.ApiError) as refused:
        write_path.delete(kinds.INFERENCE, create(kinds.INFERENCE, inference()), options, request())
    assert refused.value.code == 400
    assert path in [cause.field for cause in refused.value.causes]


@pytest.mark.parametrize("directive", ["$retainKeys", "$setElementOrder/a", "$deleteFromPrimitiveList/a"])
@pytest.mark.parametrize("value", [True, "a", {"a": 1}, 1, None])
def test_directives_that_are_not_lists_are_refused_with_their_path(directive: str, value: Any) -> None:
    with pytest.raises(errors.ApiError) as refused:
        strategic_merge.merge({"a": [1]}, {directive: value}, {"properties": {"a": {"type": "array"}}})
    assert refused.value.code == 400
    assert [cause.field for cause in refused.value.causes] == [directive]


def test_directives_for_fields_that_are_not_lists_change_nothing() -> None:
    base = {"a": {"b": 1}}
    patch = {"$deleteFromPrimitiveList/a": ["b", {}], "$setElementOrder/a": [{}, []]}
    assert strategic_merge.merge(base, patch, {}) == base


def test_an_endpoint_slice_without_endpoints_is_a_422() -> None:
    with pytest.raises(errors.Invalid, match="addressType"):
        create(kinds.ENDPOINT_SLICE, {"metadata": {"name": "a"}, "addressType": "x"})


@pytest.mark.parametrize("operation", ["copy", "move"])
@pytest.mark.parametrize("source", [{}, {"from": 5}, {"from": None}, {"from": ["a"]}])
def test_a_json_patch_from_nowhere_is_a_400(operation: str, source: dict[str, Any]) -> None:
    patch = [{"op": operation, "path": "/spec/x", **source}]
    with pytest.raises(errors.ApiError) as refused:
        write_path.patch(
            kinds.MODEL,
            create(kinds.MODEL, {"metadata": {"name": "a"}, "spec": {}}),
            patch,
            "application/json-patch+json",
            request(),
        )
    assert refused.value.code == 400
    assert [cause.field for cause in refused.value.causes] == ["[0].from"]


def json_patched(*patch: dict[str, Any]) -> None:
    model = create(kinds.MODEL, {"metadata": {"name": "a", "finalizers": ["a.b/c"]}, "spec": {}})
    write_path.patch(kinds.MODEL, model, list(patch), "application/json-patch+json", request())


def test_a_json_patch_is_refused_when_it_copies_the_end_of_a_list() -> None:
    copy = {"op": "copy", "from": "/metadata/finalizers/-", "path": "/metadata/labels"}
    with pytest.raises(errors.Invalid, match="the JSON patch does not apply: invalid array index '-'"):
        json_patched(copy)


def test_a_json_patch_is_a_400_when_its_copies_double_the_nesting() -> None:
    copies = [{"op": "copy", "from": "", "path": "/a" * 2**index} for index in range(9)]
    with pytest.raises(errors.ApiError, match="nested more than 100 levels deep") as refused:
        json_patched(*copies)
    assert refused.value.code == 400


def test_a_json_patch_is_a_400_when_it_tests_a_value_that_it_has_nested_deeply() -> None:
    levels = 90
    nested: dict[str, Any] = {}
    for _ in range(levels):
        nested = {"a": nested}
    adds = [{"op": "add", "path": "/a" * (1 + levels * index), "value": nested} for index in range(200)]
    with pytest.raises(errors.ApiError, match="nested more than 100 levels deep") as refused:
        json_patched(*adds, {"op": "test", "path": "", "value": 0})
    assert refused.value.code == 400

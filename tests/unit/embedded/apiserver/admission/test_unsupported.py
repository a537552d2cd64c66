"""What one machine cannot honour is refused when it is written, by path, rule and value."""

from typing import Any

import pytest

from serving import errors
from serving.objects import Object
from serving.resources import kinds
from tests.objects.written import create, deployment, job, pod


def causes(kind: kinds.Kind, body: Object) -> dict[str, str]:
    with pytest.raises(errors.Invalid) as refused:
        create(kind, body)
    return {cause.field: cause.message for cause in refused.value.causes}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("completionMode", "Indexed"), ("podFailurePolicy", {"rules": []}), ("successPolicy", {"rules": []}),
        ("backoffLimitPerIndex", 1), ("maxFailedIndexes", 1), ("managedBy", "a/b"), ("manualSelector", True),
        ("podReplacementPolicy", "Failed"),
    ],
)  # fmt: skip
def test_jobs_of_another_mode_are_refused(field: str, value: Any) -> None:
    found = causes(kinds.JOB, job(**{field: value}))
    assert f"spec.{field}" in found
    assert "alue: " in found[f"spec.{field}"]


def test_a_suspended_job_is_a_job() -> None:
    assert create(kinds.JOB, job(suspend=True))["spec"]["suspend"] is True


POD_FIELDS: list[tuple[str, Any]] = [
    ("hostNetwork", True), ("nodeSelector", {"a": "b"}), ("activeDeadlineSeconds", 5), ("schedulerName", "mine"),
    ("dnsPolicy", "None"), ("hostUsers", False), ("os", {"name": "windows"}), ("runtimeClassName", "kata"),
    ("securityContext.runAsUser", 0), ("readinessGates[0]", {"conditionType": "a"}),
]  # fmt: skip


@pytest.mark.parametrize(("path", "value"), POD_FIELDS)
def test_pods_and_templates_are_refused_alike(path: str, value: Any) -> None:
    field = path.split(".", maxsplit=1)[0].split("[", maxsplit=1)[0]
    shaped = [value] if "[" in path else {path.split(".")[1]: value} if "." in path else value
    named = path.split("[", maxsplit=1)[0]
    alone = causes(kinds.POD, pod(**{field: shaped}))
    assert list(alone) == [f"spec.{named}"]
    assert alone[f"spec.{named}"].startswith("Invalid value: ")
    owner = deployment()
    owner["spec"]["template"]["spec"][field] = shaped
    assert list(causes(kinds.DEPLOYMENT, owner)) == [f"spec.template.spec.{named}"]


def test_what_a_container_asks_for_in_vain_is_shown_with_its_value() -> None:
    body = pod()
    body["spec"]["containers"][0] |= {
        "securityContext": {"privileged": True}, "tty": True, "volumeMounts": [{"name": "v", "mountPath": "/proc/x"}],
        "env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "spec.nope"}}}],
        "readinessProbe": {"grpc": {"port": 80}},
    }  # fmt: skip
    body["spec"]["volumes"] = [{"name": "v", "emptyDir": {"medium": "Memory"}}]
    found = causes(kinds.POD, body)
    assert found.keys() == {
        "spec.containers[0].securityContext.privileged", "spec.containers[0].tty",
        "spec.containers[0].volumeMounts[0].mountPath", "spec.containers[0].env[0].valueFrom.fieldRef.fieldPath",
        "spec.containers[0].readinessProbe.grpc", "spec.volumes[0].emptyDir.medium",
    }  # fmt: skip
    assert '"Memory"' in found["spec.volumes[0].emptyDir.medium"]
    assert '"spec.nope"' in found["spec.containers[0].env[0].valueFrom.fieldRef.fieldPath"]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("sessionAffinity", "ClientIP"),
        ("externalIPs", ["1.2.3.4"]),
        ("ipFamilies", ["IPv6"]),
        ("externalName", "a.b"),
    ],
)
def test_services_that_are_more_than_names_of_endpoints_are_refused(field: str, value: Any) -> None:
    body = {"metadata": {"name": "a"}, "spec": {"ports": [{"port": 80}], field: value}}
    assert f"spec.{field}" in causes(kinds.SERVICE, body)


def test_cores_that_are_none_are_refused_with_the_annotations_path_and_value() -> None:
    body = pod()
    body["metadata"]["annotations"] = {"slipway.dev/cpus": "two"}
    rule = 'Invalid value: "two": must be cores such as 0, 0-2 or 0-2,5'
    assert causes(kinds.POD, body) == {"metadata.annotations[slipway.dev/cpus]": rule}
    owner = deployment()
    owner["spec"]["template"]["metadata"]["annotations"] = {"slipway.dev/cpus": "two"}
    assert causes(kinds.DEPLOYMENT, owner) == {"spec.template.metadata.annotations[slipway.dev/cpus]": rule}

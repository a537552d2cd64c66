"""Fields that one machine does not support are refused with path, rule and value."""

from typing import Any

import pytest

from serving import errors
from serving.objects import Object
from serving.resources import kinds
from tests.objects.write_requests import create, deployment, job, pod


def causes(kind: kinds.Kind, body: Object) -> dict[str, str]:
    with pytest.raises(errors.Invalid) as refused:
        create(kind, body)
    return {cause.field: cause.message for cause in refused.value.causes}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("completionMode", "Indexed"),
        ("podFailurePolicy", {"rules": []}),
        ("successPolicy", {"rules": []}),
        ("backoffLimitPerIndex", 1),
        ("maxFailedIndexes", 1),
        ("managedBy", "a/b"),
        ("manualSelector", True),
        ("podReplacementPolicy", "Failed"),
    ],
)
def test_unsupported_fields_of_jobs_are_refused(field: str, value: Any) -> None:
    refused = causes(kinds.JOB, job(**{field: value}))
    assert f"spec.{field}" in refused
    assert "alue: " in refused[f"spec.{field}"]


def test_a_suspended_job_is_accepted() -> None:
    assert create(kinds.JOB, job(suspend=True))["spec"]["suspend"] is True


POD_FIELDS: list[tuple[str, Any]] = [
    ("hostNetwork", True),
    ("nodeSelector", {"a": "b"}),
    ("activeDeadlineSeconds", 5),
    ("schedulerName", "mine"),
    ("dnsPolicy", "None"),
    ("hostUsers", False),
    ("os", {"name": "windows"}),
    ("runtimeClassName", "kata"),
    ("securityContext.runAsUser", 0),
    ("readinessGates[0]", {"conditionType": "a"}),
]


@pytest.mark.parametrize(("path", "value"), POD_FIELDS)
def test_unsupported_fields_of_pods_and_templates_are_refused(path: str, value: Any) -> None:
    field = path.split(".", maxsplit=1)[0].split("[", maxsplit=1)[0]
    content = [value] if "[" in path else {path.split(".")[1]: value} if "." in path else value
    name = path.split("[", maxsplit=1)[0]
    refused = causes(kinds.POD, pod(**{field: content}))
    assert list(refused) == [f"spec.{name}"]
    assert refused[f"spec.{name}"].startswith("Invalid value: ")
    owner = deployment()
    owner["spec"]["template"]["spec"][field] = content
    assert list(causes(kinds.DEPLOYMENT, owner)) == [f"spec.template.spec.{name}"]


def test_unsupported_fields_of_containers_are_refused_with_their_values() -> None:
    body = pod()
    body["spec"]["containers"][0] |= {
        "securityContext": {"privileged": True},
        "tty": True,
        "volumeMounts": [{"name": "v", "mountPath": "/proc/x"}],
        "env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "spec.nope"}}}],
        "readinessProbe": {"grpc": {"port": 80, "mode": "TLS"}},
    }
    body["spec"]["volumes"] = [{"name": "v", "emptyDir": {"medium": "Memory"}}]
    refused = causes(kinds.POD, body)
    assert refused.keys() == {
        "spec.containers[0].securityContext.privileged",
        "spec.containers[0].tty",
        "spec.containers[0].volumeMounts[0].mountPath",
        "spec.containers[0].env[0].valueFrom.fieldRef.fieldPath",
        "spec.containers[0].readinessProbe.grpc.mode",
        "spec.volumes[0].emptyDir.medium",
    }
    assert '"Memory"' in refused["spec.volumes[0].emptyDir.medium"]
    assert '"spec.nope"' in refused["spec.containers[0].env[0].valueFrom.fieldRef.fieldPath"]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("sessionAffinity", "ClientIP"),
        ("externalIPs", ["1.2.3.4"]),
        ("ipFamilies", ["IPv6"]),
        ("externalName", "a.b"),
    ],
)
def test_unsupported_fields_of_services_are_refused(field: str, value: Any) -> None:
    body = {"metadata": {"name": "a"}, "spec": {"ports": [{"port": 80}], field: value}}
    assert f"spec.{field}" in causes(kinds.SERVICE, body)


def test_malformed_cores_are_refused_with_the_path_and_value_of_the_annotation() -> None:
    body = pod()
    body["metadata"]["annotations"] = {"slipway.dev/cpus": "two"}
    rule = 'Invalid value: "two": must be cores such as 0, 0-2 or 0-2,5'
    assert causes(kinds.POD, body) == {"metadata.annotations[slipway.dev/cpus]": rule}
    owner = deployment()
    owner["spec"]["template"]["metadata"]["annotations"] = {"slipway.dev/cpus": "two"}
    assert causes(kinds.DEPLOYMENT, owner) == {"spec.template.metadata.annotations[slipway.dev/cpus]": rule}


def test_grpc_probe_is_accepted_with_a_valid_port() -> None:
    body = pod()
    body["spec"]["containers"][0]["readinessProbe"] = {"grpc": {"port": 80}}
    stored = create(kinds.POD, body)["spec"]["containers"][0]["readinessProbe"]
    assert stored["grpc"] == {"port": 80, "service": ""}
    body["spec"]["containers"][0]["readinessProbe"] = {"grpc": {"port": 70_000}}
    rule = "Invalid value: 70000: must be between 1 and 65535, inclusive"
    assert causes(kinds.POD, body) == {"spec.containers[0].readinessProbe.grpc.port": rule}


def test_name_of_a_secret_is_refused_in_pods_and_templates_when_it_leads_to_another_namespace() -> None:
    name = "../../default/secrets/prod"
    fields = {
        "volumes": [{"name": "v", "secret": {"secretName": name}}],
        "containers": [{"name": "main", "image": "web:1", "envFrom": [{"secretRef": {"name": name}}]}],
    }
    paths = {"spec.volumes[0].secret.secretName", "spec.containers[0].envFrom[0].secretRef.name"}
    for kind, body, prefix in (
        (kinds.POD, pod(), ""),
        (kinds.DEPLOYMENT, deployment(), "spec.template."),
        (kinds.JOB, job(), "spec.template."),
    ):
        spec = body["spec"] if kind is kinds.POD else body["spec"]["template"]["spec"]
        spec |= fields
        refused = causes(kind, body)
        assert refused.keys() == {prefix + path for path in paths}
        assert all(
            rule.startswith(f'Invalid value: "{name}": ') and "must be a DNS-1123 subdomain" in rule
            for rule in refused.values()
        )


def test_model_image_of_another_namespace_is_refused_in_pods_and_templates() -> None:
    digest = "sha256:" + "a" * 64
    for namespace in ("default", "other"):
        volumes = [{"name": "v", "image": {"reference": f"slipway.local/{namespace}/m@{digest}"}}]
        owner, batch = deployment(), job()
        owner["spec"]["template"]["spec"]["volumes"] = volumes
        batch["spec"]["template"]["spec"]["volumes"] = volumes
        for kind, body, prefix in (
            (kinds.POD, pod(volumes=volumes), ""),
            (kinds.DEPLOYMENT, owner, "spec.template."),
            (kinds.JOB, batch, "spec.template."),
        ):
            if namespace == "default":
                assert create(kind, body)
            else:
                (refused,) = causes(kind, body).items()
                assert refused[0] == f"{prefix}spec.volumes[0].image.reference"
                assert "must begin with slipway.local/default/" in refused[1]

"""Names of Secrets and ConfigMaps in a Pod's spec."""

from typing import Any

import pytest

from serving.embedded.pod_spec import object_names

REFERENCES: list[tuple[str, Any]] = [
    (
        "spec.volumes[0].secret.secretName",
        lambda name: {"volumes": [{"name": "v", "secret": {"secretName": name}}]},
    ),
    (
        "spec.volumes[0].configMap.name",
        lambda name: {"volumes": [{"name": "v", "configMap": {"name": name}}]},
    ),
    ("spec.imagePullSecrets[0].name", lambda name: {"imagePullSecrets": [{"name": name}]}),
    *(
        (
            f"spec.{kind}[0].envFrom[0].{field}.name",
            lambda name, kind=kind, field=field: {kind: [{"envFrom": [{field: {"name": name}}]}]},
        )
        for kind in ("containers", "initContainers")
        for field in ("configMapRef", "secretRef")
    ),
    *(
        (
            f"spec.{kind}[0].env[0].valueFrom.{field}.name",
            lambda name, kind=kind, field=field: {
                kind: [{"env": [{"name": "A", "valueFrom": {field: {"name": name}}}]}]
            },
        )
        for kind in ("containers", "initContainers")
        for field in ("configMapKeyRef", "secretKeyRef")
    ),
]


@pytest.mark.parametrize(("field", "spec"), REFERENCES, ids=[field for field, _ in REFERENCES])
def test_name_is_refused_by_field_rule_and_value_when_no_object_can_have_it(field: str, spec: Any) -> None:
    for name in ("../../default/secrets/prod", "..", "a/b", "", "a..b", "A", "a\n", "a" * 254, None):
        (cause,) = object_names.refusals(spec(name))
        assert cause.field == field
        assert cause.message.startswith(f"{name!r} must be a DNS-1123 subdomain")
    assert not list(object_names.refusals(spec("prod.2-a")))

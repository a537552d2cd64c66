"""Defaults of a predictor's Pods: the Pod Security profile `restricted`."""

from typing import Any

import pytest

from serving.objects import Object
from serving.planning.inference import revision
from serving.resources.engine import Engine
from serving.resources.inference import OWN_FRAMEWORKS, Predictor
from tests.fakes.surroundings import ready_version

OURS = [framework for framework in OWN_FRAMEWORKS if framework != "custom"]
COMPLETE = {
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
}
ENGINE = Engine(name="vllm", image="vllm/vllm-openai:v0.12.0", readiness="/health", liveness="/health")


def spec_of(framework: str = "sklearn", engine: Engine | None = None, **template: Any) -> Object:
    fields = {"name": "stable", "modelVersion": "v1", "template": template}
    predictor = Predictor.model_validate(fields)
    spec: Object = revision.render("digits", framework, predictor, ready_version("v1"), engine).template[
        "spec"
    ]
    return spec


def context(framework: str = "sklearn", engine: Engine | None = None, **template: Any) -> Any:
    """The securityContext of the predictor's container; None if it has none."""
    container = spec_of(framework, engine, **template)["containers"][0]
    return container.get("securityContext")


def own(**fields: Any) -> list[Object]:
    return [{"name": "predictor", "securityContext": fields}]


@pytest.mark.parametrize("framework", OURS)
def test_container_of_a_runtime_keeps_the_restricted_profile(framework: str) -> None:
    assert context(framework) == COMPLETE


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("runAsNonRoot", False),
        ("seccompProfile", {"type": "Unconfined"}),
        ("allowPrivilegeEscalation", True),
        ("capabilities", {"drop": ["NET_RAW"]}),
    ],
)
def test_field_of_the_container_in_the_template_replaces_the_default(field: str, value: Any) -> None:
    assert context(containers=own(**{field: value})) == {**COMPLETE, field: value}


def test_capability_of_the_template_is_added_to_the_default() -> None:
    added = context(containers=own(capabilities={"add": ["NET_BIND_SERVICE"]}))
    assert added["capabilities"] == {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]}


@pytest.mark.parametrize(
    ("field", "value"), [("runAsNonRoot", False), ("seccompProfile", {"type": "Unconfined"})]
)
def test_container_does_not_override_a_field_of_the_pod_in_the_template(field: str, value: Any) -> None:
    rest = {name: default for name, default in COMPLETE.items() if name != field}
    assert context(securityContext={field: value}) == rest


@pytest.mark.parametrize(
    "template", [{"securityContext": {"runAsUser": 0}}, {"containers": own(runAsUser=0)}], ids=["pod", "own"]
)
def test_container_may_be_root_when_the_template_names_that_user(template: Any) -> None:
    assert "runAsNonRoot" not in context(**template)
    assert context(**template)["allowPrivilegeEscalation"] is False


def test_user_of_the_container_counts_when_the_pod_names_root() -> None:
    template = {"securityContext": {"runAsUser": 0}, "containers": own(runAsUser=1000)}
    assert context(**template)["runAsNonRoot"] is True


@pytest.mark.parametrize(
    "fields", [{"privileged": True}, {"capabilities": {"add": ["CHOWN", "CAP_SYS_ADMIN"]}}]
)
def test_privileged_container_has_no_field_that_the_api_refuses_beside_it(fields: Any) -> None:
    assert "allowPrivilegeEscalation" not in context(containers=own(**fields))


@pytest.mark.parametrize("capabilities", [None, {"add": None}, {"add": ["SYS_ADMIN"]}])
def test_container_may_not_gain_privileges_when_the_api_accepts_that(capabilities: Any) -> None:
    assert context(containers=own(capabilities=capabilities))["allowPrivilegeEscalation"] is False


def test_template_removes_the_defaults_by_null() -> None:
    assert context(containers=[{"name": "predictor", "securityContext": None}]) is None


def test_image_of_the_template_gets_no_defaults() -> None:
    assert context(containers=[{"name": "predictor", "image": "mine"}]) is None


def test_containers_that_slipway_does_not_ship_get_no_defaults() -> None:
    assert context("custom", containers=[{"name": "predictor", "image": "mine"}]) is None
    assert context("vllm", ENGINE) is None
    beside = spec_of(containers=[{"name": "beside", "image": "mine"}])["containers"][1]
    assert "securityContext" not in beside
    assert "securityContext" not in spec_of(), "the Pod's own would hold for users' containers too"


def test_engine_has_the_context_of_its_manifest_except_for_fields_of_the_template() -> None:
    engine = ENGINE.model_copy(update={"security_context": {"runAsUser": 1000, "runAsNonRoot": True}})
    assert context("vllm", engine) == {"runAsUser": 1000, "runAsNonRoot": True}
    assert context("vllm", engine, containers=own(runAsUser=7)) == {"runAsUser": 7, "runAsNonRoot": True}
    assert context("vllm", engine, securityContext={"runAsUser": 7}) == {"runAsNonRoot": True}

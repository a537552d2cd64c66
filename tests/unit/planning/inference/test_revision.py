from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.embedded.kubelet.runtimes import RUNTIMES
from serving.planning.inference import revision
from serving.resources.inference import Framework, Predictor
from tests.fakes.surroundings import ready_version

LABEL = st.from_regex(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?", fullmatch=True)
ARM = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,28}[a-z0-9])?", fullmatch=True)


def rendered(
    version: str = "v1", framework: str = "sklearn", name: str = "digits", **more: object
) -> revision.Revision:
    predictor = Predictor.model_validate({"name": "stable", "modelVersion": version, **more})
    return revision.render(name, framework, predictor, ready_version(version))


@given(LABEL, ARM)
def test_names_are_dns_labels_however_long_the_inference_is_named(inference: str, arm: str) -> None:
    for name in (
        revision.revision_name(inference, arm, "0123abcd"),
        revision.autoscaler_name(inference, arm),
    ):
        assert revision.is_usable_name(name), name


def test_two_inferences_never_share_an_autoscaler() -> None:
    assert revision.autoscaler_name("a", "b-c") != revision.autoscaler_name("a-b", "c")
    assert revision.autoscaler_name("digits", "stable") == "digits-stable"


def test_the_name_changes_with_the_template_and_only_with_it() -> None:
    assert rendered("v1").name == rendered("v1", trafficWeight=7, autoScale={"maxReplicas": 3}).name
    assert rendered("v1").name != rendered("v2").name
    assert rendered("v1").name != rendered("v1", resources={"cpu": "1"}).name


def test_requests_equal_limits() -> None:
    container = rendered(resources={"cpu": "500m", "memory": "1Gi"}).template["spec"]["containers"][0]
    assert (
        container["resources"]["requests"]
        == container["resources"]["limits"]
        == {"cpu": "500m", "memory": "1Gi"}
    )


def env_of(found: revision.Revision) -> dict[str, str]:
    return {item["name"]: item["value"] for item in found.template["spec"]["containers"][0]["env"]}


def test_the_runtime_is_told_how_to_gather_requests_where_it_should() -> None:
    env = env_of(rendered(batching={"batchSize": 32, "timeout": "2ms"}))
    assert (env["SLIPWAY_BATCH_SIZE"], env["SLIPWAY_BATCH_TIMEOUT"]) == ("32", "2ms")
    assert env_of(rendered(batching={"batchSize": 2}))["SLIPWAY_BATCH_TIMEOUT"] == "0ms"


@pytest.mark.parametrize("nothing", [{}, {"batchSize": 1}, {"timeout": "5ms"}, None])
def test_a_predictor_that_gathers_nothing_keeps_its_revision(nothing: object) -> None:
    assert rendered(batching=nothing) == rendered()


def test_resources_of_the_template_are_merged_by_name() -> None:
    own = {"name": "predictor", "resources": {"limits": {"cpu": "2", "example.com/disk": "1"}}}
    container = rendered(resources={"cpu": "1", "memory": "1Gi"}, template={"containers": [own]}).template[
        "spec"
    ]["containers"][0]
    assert container["resources"]["limits"] == {"cpu": "2", "memory": "1Gi", "example.com/disk": "1"}


def test_own_containers_are_merged_by_name_and_their_lists_by_key() -> None:
    own = [
        {
            "name": "predictor",
            "env": [{"name": "THREADS", "value": "2"}, {"name": "SLIPWAY_MODEL_NAME", "value": "x"}],
        },
        {"name": "beside", "image": "busybox"},
    ]
    containers = rendered(template={"containers": own}).template["spec"]["containers"]
    assert [c["name"] for c in containers] == ["predictor", "beside"]
    env = {item["name"]: item["value"] for item in containers[0]["env"]}
    assert env["THREADS"] == "2"
    assert env["SLIPWAY_MODEL_NAME"] == "x"
    assert env["SLIPWAY_MODEL_DIR"] == "/mnt/model/models"
    assert containers[0]["image"] == "slipway.dev/runtimes/sklearn"


def test_a_custom_container_has_its_own_image_and_is_probed_where_it_says() -> None:
    own = [
        {"name": "predictor", "image": "mine", "readinessProbe": {"httpGet": {"path": "/up", "port": 8080}}}
    ]
    found = rendered(framework="custom", template={"containers": own})
    assert found.probe_paths == ("/up",)
    container = found.template["spec"]["containers"][0]
    assert container["image"] == "mine"
    assert "livenessProbe" not in container


def test_annotations_of_the_template_are_the_pods_and_cannot_say_another_version() -> None:
    said = {"slipway.dev/zygote": "disabled", "slipway.dev/model-version": "another"}
    template = rendered("v1", template={"metadata": {"annotations": said}}).template
    assert template["metadata"]["annotations"] == {
        "slipway.dev/zygote": "disabled",
        "slipway.dev/model-version": "v1",
    }
    assert rendered("v1").name == rendered("v1", template={}).name


@pytest.mark.parametrize("framework", [name for name in get_args(Framework) if name != "custom"])
def test_every_framework_runs_in_an_image_that_this_machine_knows(framework: str) -> None:
    (container,) = rendered(framework=framework).template["spec"]["containers"]
    assert container["image"] == f"slipway.dev/runtimes/{framework}"
    assert container["image"] in RUNTIMES

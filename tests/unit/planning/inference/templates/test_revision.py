import hashlib
import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving import errors
from serving.embedded.kubelet.runtimes import RUNTIMES
from serving.planning.inference import revision
from serving.resources import names
from serving.resources.inference import OWN_FRAMEWORKS, Predictor
from serving.settings import DEFAULTS, RuntimeImageSettings
from tests.fakes.surroundings import ready_version

LABEL = st.from_regex(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?", fullmatch=True)
ARM = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,28}[a-z0-9])?", fullmatch=True)


def rendered(
    version: str = "v1",
    framework: str = "sklearn",
    name: str = "digits",
    images: RuntimeImageSettings = DEFAULTS.runtime_images,
    **fields: object,
) -> revision.Revision:
    predictor = Predictor.model_validate({"name": "stable", "modelVersion": version, **fields})
    return revision.render(name, framework, predictor, ready_version(version), images=images)


@given(LABEL, ARM)
def test_names_are_dns_labels_for_inference_names_of_any_length(inference: str, arm: str) -> None:
    for name in (
        revision.revision_name(inference, arm, "0123abcd"),
        revision.autoscaler_name(inference, arm),
    ):
        assert revision.is_usable_name(name), name


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.text('aZ0-"\\/\n\x1f'),
    lambda inner: st.lists(inner) | st.dictionaries(st.text("abc.-/"), inner),
)


@given(JSON)
def test_hash_is_of_the_sorted_compact_text_as_stored_names_have_it(value: object) -> None:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    assert revision.hash8(value) == hashlib.sha256(text.encode()).hexdigest()[:8]


def test_two_inferences_never_share_an_autoscaler() -> None:
    assert revision.autoscaler_name("a", "b-c") != revision.autoscaler_name("a-b", "c")
    assert revision.autoscaler_name("digits", "stable") == "digits-stable"


def test_revision_name_changes_only_with_the_pod_template() -> None:
    assert rendered("v1").name == rendered("v1", trafficWeight=7, autoScale={"maxReplicas": 3}).name
    assert rendered("v1").name != rendered("v2").name
    assert rendered("v1").name != rendered("v1", resources={"cpu": "1"}).name


def test_resource_requests_equal_limits() -> None:
    container = rendered(resources={"cpu": "500m", "memory": "1Gi"}).template["spec"]["containers"][0]
    assert (
        container["resources"]["requests"]
        == container["resources"]["limits"]
        == {"cpu": "500m", "memory": "1Gi"}
    )


def env_of(rendered_revision: revision.Revision) -> dict[str, str]:
    return {
        item["name"]: item["value"] for item in rendered_revision.template["spec"]["containers"][0]["env"]
    }


def test_the_runtime_gets_the_digest_of_the_list_of_the_files() -> None:
    version = ready_version("v1")
    version["status"]["filesDigest"] = "sha256:list"
    predictor = Predictor.model_validate({"name": "stable", "modelVersion": "v1"})
    env = env_of(revision.render("digits", "sklearn", predictor, version))
    assert env["SLIPWAY_MODEL_FILES_DIGEST"] == "sha256:list"


def test_batching_is_passed_to_the_runtime_as_environment() -> None:
    env = env_of(rendered(batching={"batchSize": 32, "timeout": "2ms"}))
    assert (env["SLIPWAY_BATCH_SIZE"], env["SLIPWAY_BATCH_TIMEOUT"]) == ("32", "2ms")
    assert env_of(rendered(batching={"batchSize": 2}))["SLIPWAY_BATCH_TIMEOUT"] == "0ms"


@pytest.mark.parametrize("batching", [{}, {"batchSize": 1}, {"timeout": "5ms"}, None])
def test_batching_without_effect_keeps_the_revision(batching: object) -> None:
    assert rendered(batching=batching) == rendered()


def test_resources_of_the_template_are_merged_by_name() -> None:
    container_override = {"name": "predictor", "resources": {"limits": {"cpu": "2", "example.com/disk": "1"}}}
    container = rendered(
        resources={"cpu": "1", "memory": "1Gi"}, template={"containers": [container_override]}
    ).template["spec"]["containers"][0]
    assert container["resources"]["limits"] == {"cpu": "2", "memory": "1Gi", "example.com/disk": "1"}


def test_template_containers_are_merged_by_name_and_their_lists_by_key() -> None:
    container_overrides = [
        {
            "name": "predictor",
            "env": [{"name": "THREADS", "value": "2"}, {"name": "SLIPWAY_MODEL_NAME", "value": "x"}],
        },
        {"name": "beside", "image": "busybox"},
    ]
    containers = rendered(template={"containers": container_overrides}).template["spec"]["containers"]
    assert [c["name"] for c in containers] == ["predictor", "beside"]
    env = {item["name"]: item["value"] for item in containers[0]["env"]}
    assert env["THREADS"] == "2"
    assert env["SLIPWAY_MODEL_NAME"] == "x"
    assert env["SLIPWAY_MODEL_DIR"] == "/mnt/model/models"
    assert containers[0]["image"] == "slipway.dev/runtimes/sklearn"


@pytest.mark.parametrize(
    "name", ["SLIPWAY_MODEL_VERSION", "SLIPWAY_MODEL_DIGEST", "SLIPWAY_MODEL_FILES_DIGEST"]
)
def test_template_is_refused_when_it_sets_a_variable_that_names_the_served_model(name: str) -> None:
    variable = {"name": name, "value": "another"}
    rendered(template={"containers": [{"name": "beside", "image": "busybox", "env": [variable]}]})
    with pytest.raises(errors.Permanent, match=rf"containers\[name='predictor'\]\.env: '{name}'") as raised:
        rendered(template={"containers": [{"name": "predictor", "env": [variable]}]})
    assert raised.value.reason == "TemplateInvalid"


IMAGES = RuntimeImageSettings("registry.corp/slipway", "1.2.0", "Always", "login")


def test_image_of_a_runtime_is_that_of_the_settings() -> None:
    spec = rendered(images=IMAGES).template["spec"]
    assert spec["containers"][0]["image"] == "registry.corp/slipway/sklearn:1.2.0"
    assert spec["containers"][0]["imagePullPolicy"] == "Always"
    assert spec["imagePullSecrets"] == [{"name": "login"}]


def test_image_without_settings_is_a_local_runtime_and_has_no_policy_and_no_secret() -> None:
    for framework in set(OWN_FRAMEWORKS) - {"custom"}:
        spec = rendered(framework=framework).template["spec"]
        assert spec["containers"][0]["image"] in RUNTIMES
        assert "imagePullPolicy" not in spec["containers"][0]
        assert "imagePullSecrets" not in spec


def test_custom_container_takes_nothing_from_the_settings_of_runtime_images() -> None:
    own = {"containers": [{"name": "predictor", "image": "mine"}]}
    custom = rendered(framework="custom", template=own, images=IMAGES)
    assert custom == rendered(framework="custom", template=own)


def test_secret_of_the_settings_is_added_to_those_of_the_template() -> None:
    for own, expected in (("models", ["models", "login"]), ("login", ["login"])):
        pod = rendered(images=IMAGES, template={"imagePullSecrets": [{"name": own}]}).template["spec"]
        assert [secret["name"] for secret in pod["imagePullSecrets"]] == expected


def test_revision_changes_with_the_tag_of_the_runtime_images() -> None:
    assert rendered(images=IMAGES).name != rendered(images=replace(IMAGES, tag="1.3.0")).name


@pytest.mark.parametrize("framework", OWN_FRAMEWORKS)
def test_log_of_a_runtime_is_its_termination_message_when_it_fails(framework: str) -> None:
    container = rendered(framework=framework).template["spec"]["containers"][0]
    policy = container.get("terminationMessagePolicy")
    assert policy == (None if framework == "custom" else "FallbackToLogsOnError")


def test_template_decides_the_policy_of_the_termination_message_when_it_has_one() -> None:
    own = {"name": "predictor", "terminationMessagePolicy": "File"}
    container = rendered(template={"containers": [own]}).template["spec"]["containers"][0]
    assert container["terminationMessagePolicy"] == "File"


def test_custom_container_keeps_its_image_and_readiness_probe_path() -> None:
    custom_containers = [
        {"name": "predictor", "image": "mine", "readinessProbe": {"httpGet": {"path": "/up", "port": 8080}}}
    ]
    custom_revision = rendered(framework="custom", template={"containers": custom_containers})
    assert custom_revision.probe_paths == ("/up",)
    container = custom_revision.template["spec"]["containers"][0]
    assert container["image"] == "mine"
    assert "livenessProbe" not in container


@pytest.mark.parametrize("name", ["h2c", "grpc", "http2"])
def test_custom_container_speaks_http2_on_a_port_named_for_it(name: str) -> None:
    ports = [{"name": "metrics", "containerPort": 9090}, {"name": name, "containerPort": 9000}]
    own = [{"name": "predictor", "image": "mine", "ports": ports}]
    grpc_revision = rendered(framework="custom", template={"containers": own})
    container = grpc_revision.template["spec"]["containers"][0]
    assert grpc_revision.port == (9000, True)
    assert container["ports"] == ports
    assert container["readinessProbe"]["tcpSocket"] == {"port": 9000}
    assert "httpGet" not in container["readinessProbe"]
    assert grpc_revision.probe_paths == ("/inference.GRPCInferenceService/ServerReady",)


def test_name_of_a_port_does_not_change_the_protocol_of_a_runtime_or_a_sidecar() -> None:
    ports = [{"name": "grpc", "containerPort": 8080}]
    runtime = rendered(template={"containers": [{"name": "predictor", "ports": ports}]})
    sidecar = rendered(
        framework="custom",
        template={"containers": [{"name": "predictor", "image": "x"}, {"name": "beside", "ports": ports}]},
    )
    assert runtime.port == sidecar.port == (8080, False)


def test_template_annotations_are_kept_except_the_model_version() -> None:
    annotations = {"slipway.dev/zygote": "disabled", "slipway.dev/model-version": "another"}
    template = rendered("v1", template={"metadata": {"annotations": annotations}}).template
    assert template["metadata"]["annotations"] == {
        "slipway.dev/socket-port": "8080",
        "slipway.dev/zygote": "disabled",
        "slipway.dev/model-version": "v1",
    }
    assert rendered("v1").name == rendered("v1", template={}).name


def test_pods_of_a_custom_framework_are_passed_no_socket_and_keep_their_port_for_the_gateway() -> None:
    containers = [{"name": "predictor", "image": "x"}]
    template = rendered("v1", framework="custom", template={"containers": containers}).template
    assert template["metadata"]["annotations"] == {
        names.GATEWAY_PORT_ANNOTATION: "8080",
        names.MODEL_VERSION_ANNOTATION: "v1",
    }


def test_port_that_speaks_http2_is_kept_for_the_gateway() -> None:
    ports = [{"name": "metrics", "containerPort": 9090}, {"name": "grpc", "containerPort": 9000}]
    containers = [{"name": "predictor", "image": "x", "ports": ports}]
    template = rendered(framework="custom", template={"containers": containers}).template
    assert template["metadata"]["annotations"][names.GATEWAY_PORT_ANNOTATION] == "9000"


def test_user_may_open_the_port_of_a_custom_container() -> None:
    own = {
        "metadata": {"annotations": {names.GATEWAY_PORT_ANNOTATION: ""}},
        "containers": [{"name": "predictor", "image": "x"}],
    }
    template = rendered(framework="custom", template=own).template
    assert template["metadata"]["annotations"][names.GATEWAY_PORT_ANNOTATION] == ""


def test_user_may_refuse_the_passed_socket() -> None:
    annotations = {names.SOCKET_PORT_ANNOTATION: ""}
    template = rendered("v1", template={"metadata": {"annotations": annotations}}).template
    assert template["metadata"]["annotations"][names.SOCKET_PORT_ANNOTATION] == ""


@pytest.mark.parametrize("framework", [name for name in OWN_FRAMEWORKS if name != "custom"])
def test_every_framework_has_a_runtime_image_on_a_single_machine(framework: str) -> None:
    (container,) = rendered(framework=framework).template["spec"]["containers"]
    assert container["image"] == f"slipway.dev/runtimes/{framework}"
    assert container["image"] in RUNTIMES


POD_FIELDS = {
    "nodeSelector": {"zone": "a"},
    "affinity": {"podAntiAffinity": {}},
    "tolerations": [{"key": "gpu", "operator": "Exists"}],
    "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone"}],
    "priorityClassName": "serving.high",
    "schedulerName": "volcano",
    "runtimeClassName": "gvisor",
    "serviceAccountName": "reader",
    "imagePullSecrets": [{"name": "login"}],
    "securityContext": {"runAsNonRoot": True},
}


def test_fields_of_the_pod_are_those_of_the_template() -> None:
    template = {"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "team"}}, **POD_FIELDS}
    pod = rendered(template=template).template
    assert POD_FIELDS.items() <= pod["spec"].items()
    assert pod["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "team"
    assert pod["metadata"]["labels"][names.PREDICTOR_LABEL] == "stable"
    assert rendered(template={}).name == rendered().name, "an empty template changes no revision"


def test_node_selector_of_a_gpu_share_is_added_to_that_of_the_template() -> None:
    resources = {"gpu": {"memory": "4Gi", "mechanism": "ack"}}
    of_share = rendered(resources=resources).template["spec"]["nodeSelector"]
    both = rendered(resources=resources, template={"nodeSelector": {"zone": "a"}})
    assert both.template["spec"]["nodeSelector"] == {"zone": "a", **of_share}
    assert of_share


def test_label_of_slipway_in_a_template_is_refused_with_its_path() -> None:
    with pytest.raises(errors.Permanent) as refusal:
        rendered(template={"metadata": {"labels": {"slipway.dev/trial": "x"}}})
    assert refusal.value.reason == "TemplateInvalid"
    assert str(refusal.value) == (
        "spec.predictors[name='stable'].template.metadata.labels: 'slipway.dev/trial' is Slipway's own"
    )

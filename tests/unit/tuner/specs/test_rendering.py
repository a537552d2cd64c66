"""The Pod of a trial is that of the predictor with these settings; each setting occurs once."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.engines import shipped
from serving.errors import Permanent, Temporary
from serving.planning.inference import pod_defaults, revision
from serving.resources.inference import Predictor
from serving.resources.tuning.experiment import Prices, ProfilingExperimentSpec, Setting, TuningTarget
from serving.settings import RuntimeImageSettings
from tests.fakes.surroundings import blocked_version, ready_version
from tuner.specs import rendering
from tuner.specs.rendering import TunedTarget
from tuner.specs.space import Space

PRICES = Prices.model_validate({"cpu": "0.04", "memory": "0.005", "gpu": "2"})


def target_of(framework: Any = "sklearn", **more: Any) -> TunedTarget:
    return TunedTarget(
        "digits", framework, Predictor.model_validate({"name": "stable", "modelVersion": "v1", **more})
    )


def settings_of(*settings: tuple[str, str, str]) -> list[Setting]:
    return [Setting.model_validate({"category": c, "name": n, "value": v}) for c, n, v in settings]


def container_of(tuned_target: TunedTarget, *settings: tuple[str, str, str]) -> dict[str, Any]:
    rendered = rendering.pod(tuned_target, ready_version("v1"), settings_of(*settings), PRICES)
    containers = {container["name"]: container for container in rendered.template["spec"]["containers"]}
    assert len(containers) == len(rendered.template["spec"]["containers"])
    return dict(containers["predictor"])


def env_of(container: dict[str, Any]) -> dict[str, Any]:
    entries = {entry["name"]: entry for entry in container["env"]}
    assert len(entries) == len(container["env"]), "a variable is set twice"
    return {name: entry.get("value", entry) for name, entry in entries.items()}


def custom(**container: Any) -> TunedTarget:
    return target_of("custom", template={"containers": [{"name": "predictor", "image": "x", **container}]})


def test_pod_without_settings_is_that_of_the_running_predictor() -> None:
    tuned_target = target_of(resources={"cpu": "2", "memory": "1Gi"}, batching={"batchSize": 8})
    rendered = rendering.pod(tuned_target, ready_version("v1"), [], PRICES)
    today = revision.render("digits", "sklearn", tuned_target.predictor, ready_version("v1"))
    assert rendered.template["spec"] == today.template["spec"]
    assert rendered.cost_per_hour == pytest.approx(2 * 0.04 + 0.005)
    assert (rendered.model_name, rendered.model_version, rendered.batch) == ("digits", "v1", 1)
    assert rendered.model_digest == ready_version("v1")["status"]["digest"]


def test_container_of_a_trial_keeps_the_restricted_profile() -> None:
    container = container_of(target_of(), ("resource", "cpu", "2"))
    assert container["securityContext"] == pod_defaults.RESTRICTED


def test_pod_of_a_trial_has_no_zygote_and_no_labels_of_the_service() -> None:
    tuned_target = target_of(
        template={"metadata": {"annotations": {"a": "b", "slipway.dev/zygote": "enabled"}}}
    )
    metadata = rendering.pod(tuned_target, ready_version("v1"), [], PRICES).template["metadata"]
    assert metadata["annotations"]["slipway.dev/zygote"] == "disabled"
    assert metadata["annotations"]["a"] == "b"
    assert not metadata.get("labels")


def test_port_of_a_trial_is_open_to_its_load_generator() -> None:
    annotations = {"slipway.dev/gateway-port": "8080", "slipway.dev/socket-port": "8080"}
    tuned_target = target_of(template={"metadata": {"annotations": annotations}})
    metadata = rendering.pod(tuned_target, ready_version("v1"), [], PRICES).template["metadata"]
    assert metadata["annotations"]["slipway.dev/gateway-port"] == ""
    assert metadata["annotations"]["slipway.dev/socket-port"] == ""


def test_resources_are_replaced_in_predictor_and_template() -> None:
    own = {"name": "predictor", "resources": {"limits": {"cpu": "8", "x/y": "1"}, "requests": {"cpu": "4"}}}
    tuned_target = target_of(resources={"cpu": "1", "memory": "1Gi"}, template={"containers": [own]})
    resources = container_of(tuned_target, ("resource", "cpu", "500m"))["resources"]
    assert resources["limits"] == {"cpu": "500m", "memory": "1Gi", "x/y": "1"}
    assert resources["requests"] == {"cpu": "500m", "memory": "1Gi"}


def test_gpu_share_is_replaced_in_predictor_and_template() -> None:
    own = {
        "name": "predictor",
        "env": [{"name": "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "value": "90"}],
        "resources": {"limits": {"nvidia.com/gpumem": "1", "memory": "1Gi"}},
    }
    tuned_target = target_of(
        resources={"gpu": {"memory": "8Gi", "cores": 50}}, template={"containers": [own]}
    )
    container = container_of(tuned_target, ("resource", "gpu.cores", "30"), ("resource", "gpu.memory", "4Gi"))
    env = env_of(container)
    assert env["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "30"
    assert env["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=4096M"
    assert container["resources"]["limits"] == {"nvidia.com/gpu": "1", "memory": "1Gi"}
    only_cores = env_of(container_of(tuned_target, ("resource", "gpu.cores", "30")))
    assert only_cores["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=8192M"


def test_resource_claim_of_a_gpu_is_refused() -> None:
    tuned_target = target_of(resources={"gpu": {"cores": 50, "mechanism": "dra"}})
    with pytest.raises(Permanent, match="a trial makes no ResourceClaimTemplate") as error:
        container_of(tuned_target)
    assert error.value.reason == "TargetInvalid"


def test_container_that_speaks_http2_is_refused() -> None:
    with pytest.raises(Permanent, match=r"9000 speaks HTTP/2; trials send HTTP/1\.1") as error:
        container_of(custom(ports=[{"name": "grpc", "containerPort": 9000}]))
    assert error.value.reason == "TargetInvalid"


def test_batching_is_replaced_in_predictor_and_template() -> None:
    own = {"name": "predictor", "env": [{"name": "SLIPWAY_BATCH_SIZE", "value": "9"}]}
    tuned_target = target_of(batching={"batchSize": 4, "timeout": "1ms"}, template={"containers": [own]})
    assert env_of(container_of(tuned_target))["SLIPWAY_BATCH_SIZE"] == "9"
    env = env_of(container_of(tuned_target, ("batching", "batchSize", "16")))
    assert (env["SLIPWAY_BATCH_SIZE"], env["SLIPWAY_BATCH_TIMEOUT"]) == ("16", "1ms")
    env = env_of(container_of(tuned_target, ("batching", "batchSize", "1"), ("batching", "timeout", "5ms")))
    assert "SLIPWAY_BATCH_SIZE" not in env


def test_variable_replaces_value_and_value_from() -> None:
    entry = {"name": "THREADS", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
    own = {"name": "predictor", "env": [entry, {"name": "B", "value": "1"}]}
    container = container_of(
        target_of(template={"containers": [own]}), ("env", "THREADS", "4"), ("env", "C", "")
    )
    assert {"name": "THREADS", "value": "4"} in container["env"]
    assert env_of(container) | {"B": "1", "C": ""} == env_of(container)
    assert "SLIPWAY_MODEL_DIR" in env_of(container)


@pytest.mark.parametrize(
    ("command", "args", "expected"),
    [
        (None, None, (None, ["--threads=4"])),
        (None, ["--a", "b"], (None, ["--a", "b", "--threads=4"])),
        (None, ["--threads=1", "--a"], (None, ["--threads=4", "--a"])),
        (None, ["--threads", "1", "--a"], (None, ["--threads=4", "--a"])),
        (None, ["--threads", "-1", "x"], (None, ["--threads=4", "x"])),
        (None, ["--threads", "--a"], (None, ["--threads=4", "--a"])),
        (None, ["--threads=1", "--threads", "2"], (None, ["--threads=4"])),
        (None, ["--threads-max=1"], (None, ["--threads-max=1", "--threads=4"])),
        (None, ["--threads", 1], (None, ["--threads=4"])),
        (None, ["--a", "--", "file"], (None, ["--a", "--threads=4", "--", "file"])),
        (["serve", "--threads", "1"], ["--threads=2", "x"], (["serve", "--threads=4"], ["x"])),
        (["/bin/bash", "run.sh"], [], (["/bin/bash", "run.sh"], ["--threads=4"])),
    ],
)
def test_argument_is_passed_once(command: Any, args: Any, expected: Any) -> None:
    own = {key: value for key, value in (("command", command), ("args", args)) if value is not None}
    for name in ("threads", "--threads"):
        container = container_of(custom(**own), ("args", name, "4"))
        assert (container.get("command"), container["args"]) == expected


def vllm(**container: Any) -> TunedTarget:
    target = target_of("vllm", template={"containers": [{"name": "predictor", **container}]})
    return replace(target, engine=shipped()["vllm"])


@pytest.mark.parametrize("own", [["--max-num-seqs=64"], ["--max-num-seqs", "64"], ["--max-num-seqs", 64]])
def test_tuned_field_of_an_engine_replaces_its_argument_in_the_template(own: list[Any]) -> None:
    tuned_target = vllm(args=["--a", *own, "--block-size=16"])
    arguments = container_of(tuned_target, ("batching", "batchSize", "8"))["args"]
    assert arguments[-3:] == ["--max-num-seqs=8", "--a", "--block-size=16"]
    assert not any("64" in word for word in arguments)
    other = container_of(tuned_target, ("args", "block-size", "32"))["args"]
    assert [str(word) for word in own] == [str(word) for word in other][-len(own) - 1 : -1]


def test_tuned_field_of_an_engine_replaces_its_argument_when_the_template_has_the_command() -> None:
    words = ["serve", "--max-num-seqs", "64"]
    container = container_of(vllm(command=words, args=["--a"]), ("batching", "batchSize", "8"))
    assert (container["command"], container["args"]) == (["serve", "--max-num-seqs=8"], ["--a"])
    container = container_of(vllm(command=words[:1], args=words[1:]), ("batching", "batchSize", "8"))
    assert (container["command"], container["args"]) == (["serve"], ["--max-num-seqs=8"])


@pytest.mark.parametrize(
    ("tuned_target", "setting", "message"),
    [
        (target_of(), ("args", "threads", "4"), "args: the runtime of framework sklearn has no arguments"),
        (custom(command=["/bin/sh", "-c", "serve"]), ("args", "threads", "4"), "args: a shell script"),
        (custom(), ("batching", "batchSize", "4"), "batching: framework custom does not batch"),
        (target_of(), ("resource", "cpu", "much"), "predictor.resources.cpu: "),
        (target_of(), ("batching", "batchSize", "0"), "predictor.batching.batchSize: "),
    ],
)
def test_setting_that_cannot_be_applied_is_refused(
    tuned_target: TunedTarget, setting: tuple[str, str, str], message: str
) -> None:
    with pytest.raises(Permanent, match=message) as error:
        container_of(tuned_target, setting)
    assert error.value.reason == "SettingsInvalid"


def test_model_version_without_an_image_is_a_temporary_error() -> None:
    with pytest.raises(Temporary, match="ModelVersion v1 has no image yet"):
        rendering.pod(target_of(), {"metadata": {"name": "v1"}}, [], PRICES)
    space = space_of(("env", [{"name": "A", "feasibleSpace": {"list": ["1"]}}]))
    with pytest.raises(Temporary, match="ModelVersion v1 has no image yet"):
        rendering.costs(target_of(), {"metadata": {"name": "v1"}}, space, PRICES)


def test_a_version_that_a_policy_blocks_is_a_temporary_error_with_its_reason() -> None:
    space = space_of(("env", [{"name": "A", "feasibleSpace": {"list": ["1"]}}]))
    with pytest.raises(Temporary, match=r"v1 is blocked: model.pkl \(Pickle\) contains code") as error:
        rendering.pod(target_of(), blocked_version("v1"), [], PRICES)
    assert error.value.reason == "ModelVersionBlocked"
    with pytest.raises(Temporary, match="v1 is blocked"):
        rendering.costs(target_of(), blocked_version("v1"), space, PRICES)


WORDS = st.lists(
    st.sampled_from(["--threads", "--threads=1", "2", "-3", "--a", "--a=1", "b", "--"]), max_size=7
)
SETTINGS = st.lists(
    st.sampled_from(
        [
            ("resource", "cpu", "2"),
            ("resource", "memory", "2Gi"),
            ("env", "A", "1"),
            ("env", "B", "x"),
            ("args", "threads", "4"),
            ("args", "--a", "z"),
        ]
    ),
    unique=True,
)


@given(WORDS, WORDS, SETTINGS)
def test_applying_the_same_settings_again_changes_nothing(
    command: list[str], args: list[str], settings: list[tuple[str, str, str]]
) -> None:
    env = [{"name": "A", "value": "0"}, {"name": "D", "value": "0"}]
    tuned_target = custom(command=["serve", *command], args=args, env=env)
    once = rendering.tuned(tuned_target, settings_of(*settings))
    assert rendering.tuned(TunedTarget("digits", "custom", once), settings_of(*settings)) == once
    container = container_of(tuned_target, *settings)
    words = [*container["command"], *container["args"]]
    for category, name, value in settings:
        if category == "args":
            flag = name if name.startswith("--") else f"--{name}"
            assert [word for word in words if word.split("=")[0] == flag] == [f"{flag}={value}"]
        elif category == "env":
            assert env_of(container)[name] == value
        else:
            assert container["resources"]["limits"][name] == container["resources"]["requests"][name] == value


def target(**fields: Any) -> TuningTarget:
    return TuningTarget.model_validate(fields)


def inference(*arms: str) -> dict[str, Any]:
    predictors = [{"name": arm, "modelVersion": f"v-{arm}"} for arm in arms]
    return {"metadata": {"name": "digits"}, "spec": {"framework": "pytorch", "predictors": predictors}}


def test_source_of_an_inference_is_its_predictor() -> None:
    tuned_target = rendering.tuned_target(target(inference="digits", predictor="b"), inference("a", "b"), {})
    assert (tuned_target.name, tuned_target.framework, tuned_target.predictor.model_version) == (
        "digits",
        "pytorch",
        "v-b",
    )
    assert rendering.tuned_target(target(inference="digits"), inference("a"), {}).predictor.name == "a"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"inference": "digits"}, "is missing; digits has a, b"),
        ({"inference": "digits", "predictor": "c"}, "digits has no c; it has a, b"),
    ],
)
def test_target_without_a_matching_predictor_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(Permanent, match=rf"spec\.target\.predictor: {message}"):
        rendering.tuned_target(target(**fields), inference("a", "b"), {})


def test_source_of_a_model_version_has_the_template_of_the_target() -> None:
    template = {"containers": [{"name": "predictor", "env": [{"name": "A", "value": "1"}]}]}
    resources = {"memory": "1Gi"}
    tuned_target = rendering.tuned_target(
        target(modelVersion="v1", framework="sklearn", resources=resources, template=template), None, {}
    )
    assert container_of(tuned_target)["resources"]["limits"] == resources
    assert env_of(container_of(tuned_target))["A"] == "1"
    assert container_of(tuned_target)["image"] == "slipway.dev/runtimes/sklearn"


def test_image_of_a_trial_is_that_of_the_settings() -> None:
    images = RuntimeImageSettings(prefix="registry.corp/slipway", tag="1.2.0")
    source = target(modelVersion="v1", framework="sklearn")
    tuned_target = rendering.tuned_target(source, None, {}, images)
    assert container_of(tuned_target)["image"] == "registry.corp/slipway/sklearn:1.2.0"


def space_of(*groups: tuple[str, list[dict[str, Any]]]) -> Space:
    return Space.of(
        ProfilingExperimentSpec.model_validate(
            {
                "target": {"inference": "digits"},
                "tunableParameters": [
                    {"category": name, "parameters": parameters} for name, parameters in groups
                ],
            }
        )
    )


def test_costs_of_all_specs_equal_the_cost_of_each_pod() -> None:
    containers = [
        {"name": "side", "resources": {"requests": {"memory": "1Gi", "cpu": "1"}, "limits": {"cpu": "3"}}},
        {"name": "predictor", "resources": {"limits": {"nvidia.com/gpu": "2", "cpu": "7"}}},
    ]
    tuned_target = target_of(resources={"memory": "3Gi"}, template={"containers": containers})
    space = space_of(
        ("resource", [{"name": "cpu", "feasibleSpace": {"list": ["500m", "1", "2"]}}]),
        ("env", [{"name": "A", "feasibleSpace": {"list": ["1", "2"]}}]),
    )
    costs = rendering.costs(tuned_target, ready_version("v1"), space, PRICES)
    each = [
        rendering.pod(tuned_target, ready_version("v1"), space.settings(i), PRICES) for i in range(space.size)
    ]
    assert costs == pytest.approx(np.array([pod.cost_per_hour for pod in each]))
    assert costs[0] == pytest.approx((0.5 + 3) * 0.04 + (3 + 1) * 0.005 + 2 * 2)


MECHANISMS = [
    {"mechanism": "mps"},
    {"mechanism": "hami"},
    {"mechanism": "ack"},
    {"mechanism": "mig", "type": "A100-80GB"},
]


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda mechanism: mechanism["mechanism"])
@pytest.mark.parametrize("tuned", [("gpu.memory",), ("gpu.cores",), ("gpu.cores", "gpu.memory")])
@pytest.mark.parametrize("is_chosen", [False, True], ids=["named", "chosen"])
def test_costs_of_all_specs_use_the_granted_gpu_shares(
    mechanism: dict[str, Any], tuned: tuple[str, ...], *, is_chosen: bool
) -> None:
    tuned_target = target_of(resources={"cpu": "1", "gpu": {"memory": "6500Mi", "cores": 12, **mechanism}})
    if is_chosen:
        auto = {"memory": "6500Mi", "cores": 12, **mechanism, "mechanism": "auto"}
        tuned_target = replace(
            target_of(resources={"cpu": "1", "gpu": auto}), mechanism=mechanism["mechanism"]
        )
    lists = {"gpu.memory": ["3000Mi", "20Gi"], "gpu.cores": ["7", "33", "60"]}
    space = space_of(
        ("env", [{"name": "A", "feasibleSpace": {"list": ["1", "2"]}}]),
        ("resource", [{"name": name, "feasibleSpace": {"list": lists[name]}} for name in tuned]),
    )
    prices = Prices.model_validate({"cpu": "0.04", "gpu": "2", "gpuMemory": "80Gi"})
    costs = rendering.costs(tuned_target, ready_version("v1"), space, prices)
    each = [
        rendering.pod(tuned_target, ready_version("v1"), space.settings(i), prices) for i in range(space.size)
    ]
    assert costs == pytest.approx(np.array([pod.cost_per_hour for pod in each]))


def test_cost_is_that_of_the_granted_gpu_share() -> None:
    tuned_target = target_of(resources={"gpu": {"cores": 15, "mechanism": "mig", "type": "A100-80GB"}})
    prices = Prices.model_validate({"gpu": "7", "gpuMemory": "80Gi"})
    cost = rendering.pod(tuned_target, ready_version("v1"), [], prices).cost_per_hour
    assert cost == pytest.approx(7 * 0.28), "two of seven slices, as one is 14 percent"

"""Rules for GPUs of an Inference, and of a Pod on one machine."""

from typing import Any

import pytest

from serving import errors
from serving.objects import Object
from serving.resources import kinds
from tests.objects.write_requests import create, deployment, pod


def _inference(gpu: Object) -> Object:
    predictor = {"name": "a", "modelVersion": "m-1", "resources": {"gpu": gpu}}
    return {
        "apiVersion": kinds.INFERENCE.api_version,
        "kind": "Inference",
        "metadata": {"name": "i"},
        "spec": {"framework": "pytorch", "predictors": [predictor]},
    }


def _causes(kind: kinds.Kind, body: Object) -> dict[str, str]:
    with pytest.raises(errors.Invalid) as refused:
        create(kind, body)
    return {cause.field: cause.message for cause in refused.value.causes}


GPU_FIELD = "spec.predictors[0].resources.gpu"


def test_the_default_mechanism_of_a_gpu_share_is_auto() -> None:
    stored = create(kinds.INFERENCE, _inference({"memory": "4Gi", "cores": 30}))
    gpu = stored["spec"]["predictors"][0]["resources"]["gpu"]
    assert gpu == {"memory": "4Gi", "cores": 30, "mechanism": "auto"}


def test_a_gpu_type_is_accepted_without_a_mechanism_so_that_mig_can_be_chosen() -> None:
    create(kinds.INFERENCE, _inference({"memory": "4Gi", "type": "H200"}))


@pytest.mark.parametrize(
    ("gpu", "field", "rule"),
    [
        ({}, GPU_FIELD, "memory, cores or both must be set"),
        ({"memory": "4Gi", "mechanism": "mig"}, GPU_FIELD, "type is required for mig"),
        (
            {"memory": "4Gi", "type": "H200", "mechanism": "mps"},
            GPU_FIELD,
            "type is required for mig, allowed for auto, and not allowed otherwise",
        ),
        ({"cores": 30, "mechanism": "ack"}, GPU_FIELD, "memory must be set"),
        ({"cores": 0}, f"{GPU_FIELD}.cores", "greater than or equal to 1"),
        ({"cores": 101}, f"{GPU_FIELD}.cores", "less than or equal to 100"),
        ({"cores": 10, "mechanism": "vgpu"}, f"{GPU_FIELD}.mechanism", "vgpu"),
        ({"memory": "much"}, f"{GPU_FIELD}.memory", "much"),
    ],
)
def test_an_invalid_gpu_share_is_refused_with_its_path(gpu: Object, field: str, rule: str) -> None:
    causes = _causes(kinds.INFERENCE, _inference(gpu))
    assert rule in causes[field]


def test_a_gpu_for_a_runtime_that_does_not_use_one_is_refused() -> None:
    body = _inference({"cores": 30})
    body["spec"]["framework"] = "sklearn"
    assert "does not use a GPU" in _causes(kinds.INFERENCE, body)["spec"]


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        ("nvidia.com/gpumem", "4096", "shared by mps alone"),
        ("nvidia.com/mig-1g.5gb", "1", "shared by mps alone"),
        ("aliyun.com/gpu-mem", "4", "shared by mps alone"),
        ("nvidia.com/gpu", "2", "one GPU, or a share of it"),
    ],
)
def test_gpu_resources_that_one_machine_does_not_support_are_refused(
    name: str, value: str, rule: str
) -> None:
    body: Any = pod()
    body["spec"]["containers"][0]["resources"] = {"limits": {name: value}}
    assert rule in _causes(kinds.POD, body)[f"spec.containers[0].resources.limits[{name}]"]
    owner: Any = deployment()
    owner["spec"]["template"]["spec"]["containers"][0]["resources"] = {"limits": {name: value}}
    assert f"spec.template.spec.containers[0].resources.limits[{name}]" in _causes(kinds.DEPLOYMENT, owner)


def test_one_gpu_is_accepted_on_any_node() -> None:
    body: Any = pod()
    body["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "1"}}
    create(kinds.POD, body)

"""`slipway demo --llm --gpu`: every container gets the GPU, and a machine without one is refused by name."""

from pathlib import Path

import pytest

from serving import errors
from serving.cli.demo import gpu
from serving.cli.demo.command import demo
from serving.cli.demo.objects import sample
from serving.planning.gpu import pod
from serving.resources.inference import InferenceSpec


def test_every_predictor_of_the_samples_has_a_share_that_mps_can_give() -> None:
    for file in ("chat.yaml", "chat-elastic.yaml"):
        (inference,) = sample(file)
        changed = gpu.of_inference(inference)
        for predictor in InferenceSpec.model_validate(changed["spec"]).predictors:
            assert predictor.resources.gpu is not None
            assert pod.render(predictor.resources.gpu).env == {
                "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "30",
                "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=2048M",
            }
        assert "resources" not in inference["spec"]["predictors"][0]
        assert {
            **changed,
            "spec": {**changed["spec"], "predictors": inference["spec"]["predictors"]},
        } == inference


def test_every_job_of_the_sample_trains_on_the_gpu() -> None:
    for job in sample("chat-jobs.yaml"):
        (before,) = job["spec"]["template"]["spec"]["containers"]
        (container,) = gpu.of_job(job)["spec"]["template"]["spec"]["containers"]
        assert container["resources"] == {"limits": {"nvidia.com/gpu": "1"}}
        assert container["env"] == [*before["env"], {"name": "SLIPWAY_DEVICE", "value": "cuda"}]
        assert {**container, "env": before["env"]} == {**before, "resources": container["resources"]}


def test_machine_without_a_gpu_is_refused(tmp_path: Path) -> None:
    with pytest.raises(errors.UserError, match="--gpu: this machine has no NVIDIA GPU"):
        gpu.check(tmp_path)


def test_machine_without_mps_is_refused(tmp_path: Path) -> None:
    (tmp_path / "nvidia0").touch()
    with pytest.raises(errors.UserError, match="--gpu: nvidia-cuda-mps-control is not installed"):
        gpu.check(tmp_path, lambda _: None)


def test_the_gpu_is_for_language_models() -> None:
    with pytest.raises(errors.UserError, match="--gpu: is for language models: add --llm"):
        demo(gpu=True)

"""Additions of `slipway demo --llm --gpu` to the samples: the GPU, shared by MPS, for every container."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from serving import errors
from serving.embedded.kubelet.devices import mps
from serving.objects import Object
from serving.resources import names

SHARE = {"memory": "2Gi", "cores": 30}
"""The share of a replica, which uses 300 to 550 MiB; `cores` is in percent of the streaming multiprocessors.
The shares of five replicas, the most of the samples, and two Jobs of 1 GiB each fit on a GPU of 16 GiB."""


def check(devices: Path = Path("/dev"), which: Callable[[str], str | None] = shutil.which) -> str:
    """Return the name of the GPU.

    Raises:
        errors.UserError: the machine has no GPU that PyTorch can use and MPS can share.
    """
    if not (devices / mps.DEVICE).exists():
        raise errors.UserError(f"--gpu: this machine has no NVIDIA GPU: there is no {devices / mps.DEVICE}")
    if which(mps.PROGRAM) is None:
        raise errors.UserError(f"--gpu: {mps.PROGRAM} is not installed: it comes with NVIDIA's driver")
    import torch  # noqa: PLC0415 only with a GPU, as it takes seconds

    if not torch.cuda.is_available():
        raise errors.UserError(f"--gpu: this PyTorch ({torch.__version__}) finds no usable GPU")
    return str(torch.cuda.get_device_name())


def of_inference(inference: Object) -> Object:
    """Return the Inference with a share of the GPU for every predictor."""
    spec = inference["spec"]
    predictors = [
        {**predictor, "resources": {**predictor.get("resources", {}), "gpu": dict(SHARE)}}
        for predictor in spec["predictors"]
    ]
    return {**inference, "spec": {**spec, "predictors": predictors}}


def of_job(job: Object) -> Object:
    """Return the Job with the GPU for every container, without limits of the GPU's memory and cores."""
    template = job["spec"]["template"]
    containers = [_on_gpu(container) for container in template["spec"]["containers"]]
    template = {**template, "spec": {**template["spec"], "containers": containers}}
    return {**job, "spec": {**job["spec"], "template": template}}


def _on_gpu(container: dict[str, Any]) -> dict[str, Any]:
    return {
        **container,
        "resources": {"limits": {names.GPU_RESOURCE: "1"}},
        "env": [*container.get("env", []), {"name": names.DEVICE_ENV, "value": "cuda"}],
    }

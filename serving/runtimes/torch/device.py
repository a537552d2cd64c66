"""The device that a replica computes on."""

import os

import torch

from serving import errors
from serving.resources import names


def usable() -> str:
    """Return the CPU, unless the container has a share of a GPU.

    Raises:
        errors.Permanent: `NoGpu`, PyTorch cannot use the GPU; the CPU would be slow without notice.
    """
    device = os.environ.get(names.DEVICE_ENV, "cpu")
    if device == "cuda" and not torch.cuda.is_available():
        raise errors.Permanent(
            "NoGpu",
            f"{names.DEVICE_ENV} is cuda, and this PyTorch ({torch.__version__}) finds no usable GPU",
        )
    return device

"""The device that a replica computes on."""

import os

import torch

from serving import errors
from serving.resources import names


def usable() -> str:
    """Return `cpu`, or `cuda` where the container has a share of a GPU.

    Raises:
        errors.Permanent: `NoGpu`, PyTorch cannot use the GPU; the CPU would be slow without notice.
    """
    device = os.environ.get(names.DEVICE_ENV, "cpu")
    if device == "cuda":
        version = f"{names.DEVICE_ENV} is cuda, and this PyTorch ({torch.__version__})"
        if not torch.cuda.is_available():
            raise errors.Permanent("NoGpu", f"{version} finds no usable GPU")
        try:
            # Only an allocation proves it: MPS's daemon may refuse a client that sees the GPU.
            torch.zeros(1, device=device)
        except RuntimeError as error:
            raise errors.Permanent("NoGpu", f"{version} cannot use the GPU: {error}") from error
    return device

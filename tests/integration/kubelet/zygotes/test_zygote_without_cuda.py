"""A zygote that has a PyTorch with CUDA never asks the driver for a GPU: its forks could not use one."""

import subprocess
import sys

import pytest

from serving.embedded.kubelet.spawning import NO_CUDA, ONE_THREAD
from serving.embedded.pod_spec.environment import BASE
from tests.rig import optional_modules

optional_modules.transformers()

PROGRAM = '''
import importlib, sys, torch

def ask(*_):
    print("asked", flush=True)
    return 0

def is_available():
    """As in a build with CUDA."""
    if not torch.cuda._nvml_based_avail():
        ask()
    return torch.cuda._device_count_nvml() > 0

torch.cuda._raw_device_count_nvml = ask
torch.cuda.is_available = is_available
runtime = importlib.import_module(sys.argv[1])
for name in runtime.PRELOAD:
    importlib.import_module(name)
print(torch.cuda.is_available())
'''


def _output(module: str, environment: dict[str, str]) -> list[str]:
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, module],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=100,
        env={**BASE, **ONE_THREAD, **environment},
    ).stdout.splitlines()


@pytest.mark.parametrize("runtime", ["torch", "transformers"])
def test_preloaded_runtime_does_not_ask_for_a_gpu(runtime: str) -> None:
    assert _output(f"serving.runtimes.{runtime}.server", NO_CUDA) == ["False"]


def test_pytorch_would_ask_otherwise() -> None:
    assert "asked" in _output("serving.runtimes.torch.server", {})

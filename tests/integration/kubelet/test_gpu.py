"""With an NVIDIA GPU and its MPS daemon, Pods compute on their shares, and get no more memory."""

import asyncio
import os
import shutil
from pathlib import Path

import pytest

from serving.data_dir import DataDir
from serving.embedded.kubelet.devices import mps
from serving.kube import connect
from serving.resources import kinds
from tests.rig import optional_modules
from tests.rig.servers.node_process import agent, log_of, phase, pod, until

torch = optional_modules.torch()
NAMESPACE = "default"
pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
    pytest.mark.skipif(not Path("/dev/nvidia0").exists(), reason="this machine has no NVIDIA GPU"),
    pytest.mark.skipif(shutil.which(mps.PROGRAM) is None, reason=f"{mps.PROGRAM} is not installed"),
]

COMPUTES = """
import torch
print(int(torch.ones(8, 8, device="cuda").sum()))
print(torch.cuda.get_device_properties(0).multi_processor_count)
try:
    torch.empty(3 * 2**30, dtype=torch.uint8, device="cuda")
except torch.OutOfMemoryError:
    print("no more")
"""


def test_container_computes_on_its_share_of_the_gpu(api_server: DataDir) -> None:
    whole = torch.cuda.get_device_properties(0).multi_processor_count
    share = [
        {"name": "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "value": "30"},
        {"name": "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "value": "0=2048M"},
    ]
    container = pod(
        NAMESPACE,
        "share",
        COMPUTES,
        resources={"limits": {"nvidia.com/gpu": "1"}},
        env=share,
        spec_restartPolicy="Never",
    )

    async def run() -> list[str]:
        async with await connect(api_server.kubeconfig, component="test") as kube:
            await kube.create(kinds.POD, container)
            stored = await until(kube, NAMESPACE, "share", phase("Succeeded"), seconds=60)
            return log_of(api_server, stored).splitlines()

    try:
        with agent(api_server, NAMESPACE, "executed"):
            ones, processors, memory = asyncio.run(run())
    finally:
        mps.end(api_server)
    assert ones == "64"
    assert int(processors) <= 0.3 * whole + 1
    assert memory == "no more"

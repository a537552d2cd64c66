"""What NVIDIA's GPUs of this machine do, by NVML; nothing where there are none, or nvidia-ml-py is not installed.

https://docs.nvidia.com/deploy/nvml-api/
"""

import importlib
import logging
from pathlib import Path
from typing import Any

log = logging.getLogger(__name__)

UNKNOWN = "NVIDIA GPU"
"""Of one that cannot be asked: nvidia-ml-py is not installed, or the driver does not answer."""


class Gpus:
    """The GPUs, as NVML has them; one of these per agent."""

    def __init__(self, nvml: Any = None, devices: Path = Path("/dev")) -> None:
        """`nvml` is the module pynvml; None finds it, if it is there."""
        self._nvml = nvml
        self._handles: list[Any] = []
        there = any(devices.glob("nvidia[0-9]*"))
        self.name = UNKNOWN if there else ""
        """Of the first one; empty where there is none."""
        try:
            self._nvml = nvml or (importlib.import_module("pynvml") if there else None)
        except ImportError:
            log.warning("usage of the GPU is not known: install slipway[gpu]")
        if self._nvml is not None:
            self._open(self._nvml)

    def _open(self, nvml: Any) -> None:
        try:
            nvml.nvmlInit()
            count = nvml.nvmlDeviceGetCount()
            self._handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(count)]
            if self._handles:
                self.name = _text(nvml.nvmlDeviceGetName(self._handles[0]))
        except nvml.NVMLError as error:
            log.warning("usage of the GPU is not known: %s", error)

    def memory(self) -> dict[int, int]:
        """Return the bytes of GPU memory that each process holds, clients of MPS too; by pid."""
        found: dict[int, int] = {}
        for handle in self._handles:
            for name in ("nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetMPSComputeRunningProcesses"):
                try:
                    processes = getattr(self._nvml, name)(handle)
                except self._nvml.NVMLError:  # not supported by every GPU
                    continue
                for process in processes:
                    found[process.pid] = max(found.get(process.pid, 0), process.usedGpuMemory or 0)
        return found

    def duty(self) -> float:
        """Return the percent of the last sample's time in which the first GPU worked for anybody."""
        try:
            return (
                float(self._nvml.nvmlDeviceGetUtilizationRates(self._handles[0]).gpu)
                if self._handles
                else 0.0
            )
        except self._nvml.NVMLError:
            return 0.0


def _text(name: str | bytes) -> str:
    return name.decode(errors="replace") if isinstance(name, bytes) else name

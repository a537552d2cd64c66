"""Usage of this machine's NVIDIA GPUs, by NVML; empty without a GPU or without nvidia-ml-py.

https://docs.nvidia.com/deploy/nvml-api/
"""

import importlib
import logging
from pathlib import Path
from typing import Any

log = logging.getLogger(__name__)

UNKNOWN = "NVIDIA GPU"
"""The name of a GPU where nvidia-ml-py is not installed, or the driver does not answer."""


class Gpus:
    """The GPUs, by NVML; one instance per agent."""

    def __init__(self, nvml: Any = None, devices: Path = Path("/dev")) -> None:
        """`nvml` is the module pynvml; None imports it if there is a GPU."""
        self._nvml = nvml
        self._handles: list[Any] = []
        has_gpu = any(devices.glob("nvidia[0-9]*"))
        self.name = UNKNOWN if has_gpu else ""
        """The name of the first GPU; empty without a GPU."""
        try:
            self._nvml = nvml or (importlib.import_module("pynvml") if has_gpu else None)
        except ImportError:
            log.warning("GPU usage is not known: install slipway[gpu]")
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
            log.warning("GPU usage is not known: %s", error)

    def memory(self) -> dict[int, int]:
        """Return the GPU memory of each process in bytes, by pid, MPS clients included."""
        used: dict[int, int] = {}
        for handle in self._handles:
            for name in ("nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetMPSComputeRunningProcesses"):
                try:
                    processes = getattr(self._nvml, name)(handle)
                except self._nvml.NVMLError:  # not every GPU supports both
                    continue
                for process in processes:
                    # The larger one: both lists may have the same process.
                    used[process.pid] = max(used.get(process.pid, 0), process.usedGpuMemory or 0)
        return used

    def duty(self) -> float:
        """Return the utilization of the first GPU, by all processes, in percent; 0 if it is not known."""
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

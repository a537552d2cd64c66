"""The usage of GPUs, by NVML."""
# ruff: noqa: N802 the names of NVML

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from serving.embedded.kubelet.devices.gpus import UNKNOWN, Gpus


class _Nvml:
    class NVMLError(Exception):
        pass

    def __init__(self, *, broken: bool = False) -> None:
        self.broken = broken

    def nvmlInit(self) -> None:
        if self.broken:
            raise self.NVMLError("Driver Not Loaded")

    def nvmlDeviceGetCount(self) -> int:
        return 1

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetName(self, _: int) -> bytes:
        return b"NVIDIA H100 80GB HBM3"

    def nvmlDeviceGetUtilizationRates(self, _: int) -> Any:
        return SimpleNamespace(gpu=37)

    def nvmlDeviceGetComputeRunningProcesses(self, _: int) -> list[Any]:
        return [SimpleNamespace(pid=7, usedGpuMemory=100), SimpleNamespace(pid=8, usedGpuMemory=None)]

    def nvmlDeviceGetMPSComputeRunningProcesses(self, _: int) -> list[Any]:
        return [SimpleNamespace(pid=7, usedGpuMemory=120)]


def test_gpu_memory_is_by_process_and_mps_clients_count_once() -> None:
    gpus = Gpus(_Nvml())
    assert gpus.memory() == {7: 120, 8: 0}
    assert (gpus.name, gpus.duty()) == ("NVIDIA H100 80GB HBM3", 37.0)


def test_gpu_memory_is_known_when_mps_queries_are_not_supported() -> None:
    class Old(_Nvml):
        def nvmlDeviceGetMPSComputeRunningProcesses(self, _: int) -> list[Any]:
            raise self.NVMLError("Not Supported")

    assert Gpus(Old()).memory() == {7: 100, 8: 0}


def test_machine_without_a_gpu_has_no_name_and_no_usage(tmp_path: Path) -> None:
    gpus = Gpus(devices=tmp_path)
    assert (gpus.name, gpus.memory(), gpus.duty()) == ("", {}, 0.0)


def test_usage_is_empty_when_the_driver_does_not_answer(tmp_path: Path) -> None:
    (tmp_path / "nvidia0").touch()
    gpus = Gpus(_Nvml(broken=True), tmp_path)
    assert (gpus.memory(), gpus.duty()) == ({}, 0.0)
    assert gpus.name == UNKNOWN

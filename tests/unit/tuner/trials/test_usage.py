"""Usage of a replica from two readings of its node's counters."""

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving import errors
from serving.kube import node_pages
from serving.objects import Object
from serving.resources.formats import cadvisor
from serving.resources.formats.cadvisor import ContainerUsage
from tests.fakes.kube import FakeKube
from tuner.trials import usage

TEXT = "".join(
    f'{name}{{namespace="ns",pod="{pod}",container="{container}"}} {value}\n'
    for name, values in {
        cadvisor.CPU_SECONDS: (10, 1, 99),
        cadvisor.WORKING_SET: (300, 40, 99),
        cadvisor.PEAK: (500, 50, 99),
    }.items()
    for (pod, container), value in zip((("p", "main"), ("p", "side"), ("q", "main")), values, strict=True)
)
POD = {"metadata": {"name": "p", "namespace": "ns"}, "spec": {"nodeName": "n1"}}


def test_counters_are_summed_over_the_containers_of_the_pod() -> None:
    counters = usage.of_pod(TEXT, "ns", "p")
    assert counters is not None
    assert (counters.cpu_seconds, counters.working_set, counters.peak) == (11, 340, 550)


def test_counters_are_none_for_an_unknown_pod() -> None:
    assert usage.of_pod(TEXT, "other", "p") is None


def test_usage_is_the_difference_of_two_readings() -> None:
    before = ContainerUsage(
        cpu_seconds=10, periods=100, throttled_periods=20, working_set=70, peak=100, gpu_duty=20, gpus=1
    )
    after = ContainerUsage(
        cpu_seconds=25, periods=200, throttled_periods=45, working_set=90, peak=100, gpu_duty=40, gpus=1
    )
    used = usage.between(before, after, 10)
    assert used.cpu_cores == pytest.approx(1.5)
    assert used.cpu_throttled == pytest.approx(0.25)
    assert used.memory_bytes == 90, "the high-water mark is older than these readings"
    assert used.gpu_utilization == pytest.approx(0.3)


def test_gpu_utilization_is_the_mean_over_the_gpus_when_there_are_several() -> None:
    text = "".join(
        f'{cadvisor.GPU_DUTY}{{namespace="ns",pod="p",container="main",acc_id="{gpu}"}} 80\n'
        for gpu in ("a", "b")
    )
    counters = usage.of_pod(TEXT + text, "ns", "p")
    assert counters is not None
    assert usage.between(counters, counters, 10).gpu_utilization == pytest.approx(0.8)


def test_memory_is_the_high_water_mark_when_it_rose() -> None:
    used = usage.between(
        ContainerUsage(working_set=70, peak=100), ContainerUsage(working_set=80, peak=130), 10
    )
    assert used.memory_bytes == 130


def test_reset_counters_count_from_zero() -> None:
    before = ContainerUsage(cpu_seconds=100, periods=900, throttled_periods=300, peak=500)
    used = usage.between(before, ContainerUsage(cpu_seconds=4, periods=40, throttled_periods=10, peak=60), 8)
    assert (used.cpu_cores, used.cpu_throttled, used.memory_bytes) == (0.5, 0.25, 60)


def test_the_nodes_timestamps_replace_seconds() -> None:
    before, after = ContainerUsage(cpu_seconds=10, at=1000.0), ContainerUsage(cpu_seconds=16, at=1012.0)
    assert usage.between(before, after, 10).cpu_cores == 0.5
    assert usage.between(before, before, 10).cpu_cores == 0, "both readings have one timestamp"


@given(st.tuples(*[st.floats(0, 1e6)] * 4), st.tuples(*[st.floats(0, 1e6)] * 4), st.floats(0.001, 1e4))
def test_usage_is_never_negative_and_throttling_is_a_share(
    first: tuple[float, ...], second: tuple[float, ...], seconds: float
) -> None:
    def reading(values: tuple[float, ...]) -> ContainerUsage:
        cpu, periods, share, held = values
        return ContainerUsage(
            cpu_seconds=cpu, periods=periods, throttled_periods=periods * share / 1e6, peak=held
        )

    used = usage.between(reading(first), reading(second), seconds)
    assert used.cpu_cores >= 0
    assert used.cpu_throttled >= 0
    assert used.memory_bytes >= 0


def test_description_has_the_known_parts() -> None:
    assert usage.machine_summary("AMD EPYC", "2", "") == "AMD EPYC, 2 cores, no GPU"
    assert usage.machine_summary("", "1", "NVIDIA H100") == "1 core, NVIDIA H100"


def test_description_of_a_clusters_node_has_type_and_gpu_label() -> None:
    node = {
        "metadata": {
            "labels": {
                "node.kubernetes.io/instance-type": "g5.xlarge",
                "nvidia.com/gpu.product": "NVIDIA-A10G",
            }
        },
        "status": {"capacity": {"cpu": "4"}, "nodeInfo": {"architecture": "amd64"}},
    }
    assert usage.of_node(node) == "g5.xlarge, 4 cores, NVIDIA-A10G"
    assert usage.of_node({"metadata": {}}) == "no GPU"


class WithoutNodeProxy(FakeKube):
    """An API whose account may get nodes, and no `nodes/proxy`."""

    async def raw(self, path: str, query: object = None) -> bytes:
        raise errors.Forbidden(403, "Forbidden", f"may not get {path}")

    async def request(self, method: str, path: str, **_: object) -> Object:
        assert (method, path) == ("GET", "/api/v1/nodes/n1")
        return {"metadata": {}, "status": {"capacity": {"cpu": "4"}, "nodeInfo": {"architecture": "arm64"}}}


class LargeNode(FakeKube):
    """An API with the page of a node of many Pods."""

    page = "".join(
        f'{cadvisor.WORKING_SET}{{namespace="ns",pod="other-{number}",container="main"}} 1\n'
        for number in range(20_000)
    )

    async def raw(self, path: str, query: object = None) -> bytes:
        return f"{self.page}{TEXT}".encode()

    async def request(self, method: str, path: str, **_: object) -> Object:
        return {"metadata": {}}


@pytest.mark.parametrize("reads", ["usage", "machine"])
async def test_page_of_a_node_is_parsed_in_a_thread_when_it_is_read(
    reads: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[int] = []
    parser = "containers" if reads == "usage" else "machine"
    parse = getattr(cadvisor, parser)

    def noted(text: str) -> object:
        threads.append(threading.get_ident())
        return parse(text)

    monkeypatch.setattr(cadvisor, parser, noted)
    if reads == "usage":
        assert (await usage.read(LargeNode("slipway-trial"), POD)).working_set == 340
    else:
        assert await usage.machine(LargeNode("slipway-trial"), "n1") == "no GPU"
    assert len(threads) == 1
    assert threads != [threading.get_ident()]


async def test_usage_is_unreadable_when_the_page_of_the_node_is_too_large(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(node_pages, "PAGE_BYTES", 4096)
    with pytest.raises(ValueError, match="the metrics of node n1 have more than 4096 bytes"):
        await usage.read(LargeNode("slipway-trial"), POD)


async def test_a_machine_is_described_by_its_node_when_its_metrics_are_forbidden() -> None:
    assert await usage.machine(WithoutNodeProxy("slipway-trial"), "n1") == "arm64, 4 cores, no GPU"

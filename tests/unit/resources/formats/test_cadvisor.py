"""Parsing of the kubelet's cAdvisor metrics."""

from serving.resources.formats import cadvisor
from serving.resources.formats.cadvisor import ContainerKey

KUBELET = """\
# HELP container_cpu_usage_seconds_total Cumulative cpu time consumed in seconds.
# TYPE container_cpu_usage_seconds_total counter
container_cpu_usage_seconds_total{container="",cpu="total",\
id="/kubepods",image="",name="",namespace="",pod=""} 900.5 1700000000123
container_cpu_usage_seconds_total{container="",cpu="total",\
id="/kubepods/p",image="",name="",namespace="ns",pod="p"} 12.5 1700000000123
container_cpu_usage_seconds_total{container="POD",cpu="total",\
id="/kubepods/p/x",image="pause",name="x",namespace="ns",pod="p"} 0.5 1700000000123
container_cpu_usage_seconds_total{container="main",cpu="cpu00",\
id="/kubepods/p/y",image="i",name="y",namespace="ns",pod="p"} 4 1700000009000
container_cpu_usage_seconds_total{container="main",cpu="cpu01",\
id="/kubepods/p/y",image="i",name="y",namespace="ns",pod="p"} 8 1700000009000
# TYPE container_memory_working_set_bytes gauge
container_memory_working_set_bytes{container="main",\
id="/kubepods/p/y",image="i",name="y",namespace="ns",pod="p"} 1.5e+08 1700000009500
container_memory_working_set_bytes{container="side",\
id="/kubepods/p/z",image="i",name="z",namespace="ns",pod="p"} 7 1700000009500
# TYPE container_spec_cpu_period gauge
container_spec_cpu_period{container="main",namespace="ns",pod="p"} 100000
"""


def test_containers_are_read_without_pods_and_sandboxes() -> None:
    usage = cadvisor.containers(KUBELET)
    assert set(usage) == {ContainerKey("ns", "p", "main"), ContainerKey("ns", "p", "side")}
    main = usage[ContainerKey("ns", "p", "main")]
    assert (main.cpu_seconds, main.working_set, main.at) == (12.0, 1.5e8, 1700000009.5)


def test_machine_is_read_only_from_the_embedded_node() -> None:
    assert cadvisor.machine(KUBELET) == {}
    embedded = 'slipway_machine_info{cores="2",cpu="AMD EPYC",gpu=""} 1.0\n'
    assert cadvisor.machine(embedded) == {"cores": "2", "cpu": "AMD EPYC", "gpu": ""}

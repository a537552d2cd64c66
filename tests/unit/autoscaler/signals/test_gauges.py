"""What engines, nodes and a Prometheus say, as numbers."""

import asyncio
import math
from collections.abc import AsyncIterator, Mapping

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.observation import EngineLoad
from autoscaler.policy.config import Metric
from autoscaler.signals import engines, gauges, prometheus, usage
from autoscaler.signals.gauges import Gauges, GaugesToRead
from serving import clock, errors
from serving.engines import shipped
from serving.kube import Key, node_pages
from serving.objects import Object
from serving.resources.formats.cadvisor import ContainerKey, ContainerUsage
from serving.system.network import http_reading, sockets
from tests.fakes.kube import FakeKube
from tests.rig.control_plane.convergence import until
from tests.rig.machine.gateway_ports import keep_for_gateway, needs_marks

VLLM = """# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{model_name="m"} 4.0
vllm:num_requests_running{model_name="m"} 8.0
vllm:kv_cache_usage_perc{model_name="m"} 0.75
vllm:prompt_tokens_total{model_name="m"} 1000.0
vllm:generation_tokens_total{model_name="m"} 500.0
"""
SGLANG = """sglang:num_queue_reqs{model_name="m",tp_rank="0"} 3.0
sglang:num_running_reqs{model_name="m",tp_rank="0"} 16.0
sglang:token_usage{model_name="m",tp_rank="0"} 0.91
sglang:prompt_tokens_total{model_name="m"} 8.128902e+06
sglang:generation_tokens_total{model_name="m"} 7.557572e+06
"""
TGI = """tgi_queue_size 3
tgi_batch_current_size 8
tgi_request_input_length_bucket{le="128"} 10
tgi_request_input_length_sum 4000
tgi_request_input_length_count 12
tgi_request_generated_tokens_sum 1000
"""
TRITON_LLM = """nv_inference_pending_request_count{model="ensemble",version="1"} 1
nv_trt_llm_request_metrics{model="tensorrt_llm",request_type="waiting",version="1"} 2
nv_trt_llm_request_metrics{model="tensorrt_llm",request_type="max",version="1"} 512
nv_trt_llm_request_metrics{model="tensorrt_llm",request_type="active",version="1"} 7
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="fraction",model="tensorrt_llm",version="1"} 0.6
nv_llm_input_token_len_sum{model="tensorrt_llm",response_metric_type="total_input_tokens",version="1"} 4000
nv_llm_output_token_len_sum{model="tensorrt_llm",response_metric_type="total_output_tokens",version="1"} 1000
"""
TRITON = """nv_inference_pending_request_count{model="a",version="1"} 2
nv_inference_pending_request_count{model="b",version="1"} 3
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="fraction",model="a"} 0.5
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="max",model="a"} 900
"""

NAMES = engines.EnginePageParser(shipped())


def test_an_engines_page_is_read_by_its_own_names() -> None:
    reading = NAMES.parse(VLLM)
    assert (reading.waiting, reading.running, reading.cache, reading.tokens) == (4, 8, 0.75, 1500)
    assert engines.waiting_tokens(reading, 100) == 400
    reading = NAMES.parse(TRITON)
    assert (reading.waiting, reading.cache, reading.tokens) == (5, 0.5, None)


@pytest.mark.parametrize(
    ("page", "waiting", "running", "cache", "tokens"),
    [
        (VLLM, 4, 8, 0.75, 1500),
        (SGLANG, 3, 16, 0.91, 15_686_474),
        (TGI, 3, 8, None, 5000),
        (TRITON_LLM, 3, 7, 0.6, 5000),
    ],
    ids=["vllm", "sglang", "tgi", "triton"],
)
def test_tokens_and_saturation_are_read_of_every_engine(
    page: str, waiting: float, running: float, cache: float | None, tokens: float
) -> None:
    reading = NAMES.parse(page)
    assert (reading.waiting, reading.running, reading.cache, reading.tokens) == (
        waiting,
        running,
        cache,
        tokens,
    )


@given(st.text(max_size=300))
def test_values_are_finite_and_not_negative_for_any_page(text: str) -> None:
    reading = NAMES.parse(VLLM + text + "\nvllm:num_requests_waiting NaN\nvllm:num_requests_running -3\n")
    for value in (reading.waiting, reading.running, reading.cache, reading.tokens):
        assert value is not None
        assert 0 <= value < math.inf


@pytest.mark.parametrize(
    ("answer", "value"),
    [
        ({"status": "success", "data": {"resultType": "scalar", "result": [1, "2.5"]}}, 2.5),
        (
            {
                "status": "success",
                "data": {"resultType": "vector", "result": [{"value": [1, "1"]}, {"value": [1, "2"]}]},
            },
            3,
        ),
    ],
    ids=["scalar", "vector"],
)
def test_a_querys_value_is_the_sum_of_its_samples(answer: object, value: float) -> None:
    assert prometheus.parse_instant(answer) == value


@pytest.mark.parametrize(
    "answer",
    [
        None,
        [],
        {},
        {"status": "error", "error": "parse"},
        {"status": "success", "data": {"resultType": "vector", "result": []}},
        {"status": "success", "data": {"resultType": "scalar", "result": [1, "NaN"]}},
        {"status": "success", "data": {"resultType": "scalar", "result": [1, "-1"]}},
    ],
)
def test_response_without_a_plausible_value_has_no_value(answer: object) -> None:
    with pytest.raises(errors.Unavailable):
        prometheus.parse_instant(answer)


async def test_tokens_per_second_are_counted_over_replicas_whose_pages_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, totals = [100.0], {"a": 1000.0, "b": 5000.0}
    monkeypatch.setattr(clock, "monotonic", lambda: now[0])

    async def page(request: web.Request) -> web.Response:
        total = totals.get(request.match_info["pod"])
        if total is None:
            return web.Response(status=503)
        return web.Response(
            text="vllm:num_requests_waiting 2\nvllm:kv_cache_usage_perc 0.9\n"
            f"vllm:prompt_tokens_total {total}\n"
        )

    app = web.Application()
    app.router.add_get("/{pod}", page)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    port = runner.addresses[0][1]
    pods = [
        {
            "metadata": {
                "uid": name,
                "annotations": {"prometheus.io/port": str(port), "prometheus.io/path": f"/{name}"},
            },
            "spec": {},
            "status": {"podIP": "127.0.0.1"},
        }
        for name in ("a", "b", "gone")
    ]
    metric = Metric("TokensPerSecond", "TokensPerSecond", None)
    read, key = Gauges(FakeKube().client("test"), known_engines=shipped()), Key("default", "a")
    try:
        await read.read({key: GaugesToRead([metric], pods)})
        assert read.engine_load(key) is None
        assert [health.healthy for health in read.last_values(key)[1]] == [False]
        now[0], totals["a"], totals["b"] = 110.0, 2000.0, 5500.0
        await read.read({key: GaugesToRead([metric], pods)})
        assert read.engine_load(key) == EngineLoad(150.0, 2, 4.0, 0.9)
        assert read.last_values(key)[0] == {"TokensPerSecond": 150.0}
        now[0], totals["c"] = 120.0, totals.pop("a")
        await read.read({key: GaugesToRead([metric], pods)})
        now[0], totals["a"], totals["b"] = 130.0, totals.pop("c") + 200, 5500.0
        await read.read({key: GaugesToRead([metric], pods)})
        assert read.engine_load(key) == EngineLoad(10.0, 2, 4.0, 0.9), "one page did not answer once"
        now[0] = 191.0
        assert read.engine_load(key) is None, "a minute old"
    finally:
        await read.close()
        await runner.cleanup()


async def test_page_of_a_replica_is_read_when_a_hundred_others_do_not_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gauges, "TIMEOUT_SECONDS", 1.5)
    release = asyncio.Event()

    async def page(request: web.Request) -> web.Response:
        if request.path == "/silent":
            await release.wait()
        await asyncio.sleep(0.2)  # a connection that is free after the others' timeouts comes too late
        return web.Response(text="vllm:num_requests_waiting 2\n")

    app = web.Application()
    app.router.add_get("/{name}", page)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    port = str(runner.addresses[0][1])
    pods = [
        {
            "metadata": {
                "uid": str(number),
                "annotations": {"prometheus.io/port": port, "prometheus.io/path": path},
            },
            "spec": {},
            "status": {"podIP": "127.0.0.1"},
        }
        for number, path in enumerate([*["/silent"] * 100, "/metrics"])
    ]
    metric = Metric("TokenQueueDepth", "TokenQueueDepth", None)
    read, key = Gauges(FakeKube().client("test"), known_engines=shipped()), Key("default", "a")
    try:
        await read.read({key: GaugesToRead([metric], pods)})
        assert read.last_values(key)[0] == {"TokenQueueDepth": 1000.0}
    finally:
        release.set()
        await read.close()
        await runner.cleanup()


@pytest.mark.root
@needs_marks
@pytest.mark.parametrize("is_marked", [True, False])
async def test_page_of_a_port_that_is_kept_for_the_gateway_is_read_with_the_mark_alone(
    monkeypatch: pytest.MonkeyPatch, *, is_marked: bool
) -> None:
    if not is_marked:
        monkeypatch.setattr(sockets, "can_mark", lambda: False)
        monkeypatch.setattr(gauges, "TIMEOUT_SECONDS", 0.3)
    app = web.Application()

    async def page(_: web.Request) -> web.Response:
        return web.Response(text="vllm:num_requests_waiting 2\n")

    app.router.add_get("/metrics", page)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    port = runner.addresses[0][1]
    keep_for_gateway("127.0.0.1", port)
    pod = {
        "metadata": {"uid": "a"},
        "spec": {"containers": [{"ports": [{"containerPort": port}]}]},
        "status": {"podIP": "127.0.0.1"},
    }
    metric = Metric("TokenQueueDepth", "TokenQueueDepth", None)
    read, key = Gauges(FakeKube().client("test"), known_engines=shipped()), Key("default", "a")
    try:
        await read.read({key: GaugesToRead([metric], [pod])})
        assert read.last_values(key)[0] == ({"TokenQueueDepth": 1000.0} if is_marked else {})
    finally:
        await read.close()
        await runner.cleanup()


def test_share_is_relative_to_the_limits_of_the_container() -> None:
    pod = {
        "metadata": {"namespace": "n", "name": "p"},
        "spec": {
            "nodeName": "local",
            "containers": [
                {"name": "c", "resources": {"limits": {"cpu": "500m", "memory": "1Ki"}}},
                {"name": "beside"},
            ],
        },
    }
    where = ContainerKey("n", "p", "c")
    before = usage.next_reading(None, 10, {where: ContainerUsage(cpu_seconds=1)})
    figures = ContainerUsage(cpu_seconds=3, working_set=512, gpu_duty=40, gpus=1)
    after = usage.next_reading(before, 20, {where: figures})
    assert usage.share("cpu", [pod], {"local": after}) == pytest.approx(0.4)
    assert usage.share("memory", [pod], {"local": after}) == 0.5
    assert usage.share("gpu", [pod], {"local": after}) == 0.4
    assert usage.share("cpu", [pod], {"local": usage.next_reading(None, 20, {where: figures})}) is None
    restarted = usage.next_reading(after, 30, before.figures)
    assert usage.share("cpu", [pod], {"local": restarted}) is None, "it was started again"


def test_gpu_share_is_that_of_the_containers_with_a_known_duty_cycle() -> None:
    containers = [{"name": "c"}, {"name": "beside"}]
    pod = {
        "metadata": {"namespace": "n", "name": "p"},
        "spec": {"nodeName": "local", "containers": containers},
    }
    beside = {ContainerKey("n", "p", "beside"): ContainerUsage(cpu_seconds=1)}
    on_gpus = {ContainerKey("n", "p", "c"): ContainerUsage(gpu_duty=160, gpus=2)}
    assert usage.share("gpu", [pod], {"local": usage.NodeUsage(0, beside)}) is None
    assert usage.share("gpu", [pod], {"local": usage.NodeUsage(0, beside | on_gpus)}) == 0.8


def test_cpu_share_is_the_last_one_while_the_node_has_no_new_sample() -> None:
    pod = {
        "metadata": {"namespace": "n", "name": "p"},
        "spec": {"nodeName": "a", "containers": [{"name": "c", "resources": {"limits": {"cpu": "1"}}}]},
    }
    where, node, shares = ContainerKey("n", "p", "c"), None, []
    # Read every 10 s, sampled every 15 s: the third reading repeats the second sample.
    samples = [(1000.0, 0.0), (1015.0, 6.0), (1015.0, 6.0), (1030.0, 15.0)]
    for reading, (at, cpu_seconds) in enumerate(samples):
        figures = {where: ContainerUsage(cpu_seconds=cpu_seconds, at=at)}
        node = usage.next_reading(node, 10.0 * reading, figures)
        shares.append(usage.share("cpu", [pod], {"a": node}))
    assert shares == [None, pytest.approx(0.4), pytest.approx(0.4), pytest.approx(0.6)]


def test_cpu_share_is_unknown_when_a_node_has_had_no_new_sample_for_a_minute() -> None:
    where, node = ContainerKey("n", "p", "c"), None
    samples = [(1000.0, 0.0), *((1010.0, 6.0) for _ in range(8))]
    ages = []
    for reading, (at, cpu_seconds) in enumerate(samples):
        node = usage.next_reading(
            node, 10.0 * reading, {where: ContainerUsage(cpu_seconds=cpu_seconds, at=at)}
        )
        ages.append(where in node.cpu_rates)
    assert ages == [False, True, True, True, True, True, True, False, False]


class Nodes(FakeKube):
    """An API whose nodes answer at once, never, or without an end."""

    page = (
        'container_memory_working_set_bytes{container="c",namespace="n",pod="p"} 512\n'
        'container_cpu_usage_seconds_total{container="c",cpu="total",namespace="n",pod="p"} 1\n'
    )

    async def stream(self, path: str, query: Mapping[str, str] | None = None) -> AsyncIterator[bytes]:
        node = path.split("/")[4]
        if node.startswith("vanished"):
            await asyncio.Event().wait()
        while node == "endless":
            yield b"#" * 1024
            await asyncio.sleep(0)
        yield self.page.encode()


def pod_on(node: str) -> Object:
    limits = {"resources": {"limits": {"memory": "1Ki"}}}
    return {
        "metadata": {"namespace": "n", "name": "p", "uid": node},
        "spec": {"nodeName": node, "containers": [{"name": "c", **limits}]},
    }


async def test_usage_is_that_of_the_nodes_that_answer_when_others_have_vanished_or_do_not_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gauges, "NODE_SECONDS", 0.3)
    monkeypatch.setattr(node_pages, "PAGE_BYTES", 4096)
    metric = Metric("Utilization/memory", "Utilization", 80.0, resource="memory")
    vanished = [f"vanished-{i}" for i in range(gauges.NODES_AT_ONCE - 2)]
    pods = [pod_on(node) for node in (*vanished, "endless", "good")]
    read, key, bad = Gauges(Nodes().client("test")), Key("n", "a"), Key("n", "b")
    try:
        async with asyncio.timeout(10):
            await read.read({key: GaugesToRead([metric], pods), bad: GaugesToRead([metric], pods[:1])})
        assert read.last_values(key)[0] == {"Utilization/memory": 0.5}
        assert [health.healthy for health in read.last_values(bad)[1]] == [False]
    finally:
        await read.close()


async def test_last_values_stay_while_a_metric_is_slow_and_its_others_are_read_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, asked, release = [100.0], [], asyncio.Event()
    monkeypatch.setattr(clock, "monotonic", lambda: now[0])

    async def instant(_: object, __: str, query: str) -> float:
        asked.append(query)
        if now[0] > 100:
            await release.wait()
        return now[0]

    monkeypatch.setattr(prometheus, "query_instant", instant)
    metrics = [Metric(name, "PromQL", 5.0, query=name, server="http://p") for name in ("a", "b")]
    read, key = Gauges(FakeKube().client("test")), Key("n", "a")
    wanted = {key: GaugesToRead(metrics, [])}
    try:
        await read.read(wanted)
        now[0] = 110.0
        reading = asyncio.create_task(read.read(wanted))
        await until(lambda: len(asked) == 4, "both queries at once")
        assert read.last_values(key)[0] == {"a": 100.0, "b": 100.0}
        release.set()
        await reading
        assert read.last_values(key)[0] == {"a": 110.0, "b": 110.0}
    finally:
        await read.close()


@pytest.mark.parametrize(
    ("port", "url"),
    [("8080", "http://[fd00::1]:8080/metrics"), ("9" * 5000, ""), ("80@other.host", "")],
    ids=["ipv6", "endless", "host"],
)
async def test_page_of_an_ipv6_pod_is_asked_for_and_no_port_that_is_none(
    port: str, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    async def get(_: object, address: str, **__: float) -> http_reading.Page:
        asked.append(address)
        return http_reading.Page(200, b"vllm:num_requests_waiting 2\n")

    monkeypatch.setattr(http_reading, "get", get)
    pod = {
        "metadata": {"uid": "a", "annotations": {"prometheus.io/port": port}},
        "spec": {},
        "status": {"podIP": "fd00::1"},
    }
    metric = Metric("TokenQueueDepth", "TokenQueueDepth", None)
    read, key = Gauges(FakeKube().client("test"), known_engines=shipped()), Key("default", "a")
    try:
        await read.read({key: GaugesToRead([metric], [pod])})
        assert asked == [url][: bool(url)]
        assert read.last_values(key)[0] == ({"TokenQueueDepth": 1000.0} if url else {})
    finally:
        await read.close()

"""What engines, nodes and a Prometheus say, as numbers."""

import math

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.observation import EngineLoad
from autoscaler.policy.config import Metric
from autoscaler.signals import engines, gauges, prometheus, usage
from autoscaler.signals.gauges import Gauges, Request
from serving import clock, errors
from serving.engines import shipped
from serving.kube import Key
from serving.resources.formats.cadvisor import ContainerKey, ContainerUsage
from serving.system.network import sockets
from tests.fakes.kube import FakeKube
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

NAMES = engines.MetricNames(shipped())


def test_an_engines_page_is_read_by_its_own_names() -> None:
    reading = NAMES.read(VLLM)
    assert (reading.waiting, reading.running, reading.cache, reading.tokens) == (4, 8, 0.75, 1500)
    assert engines.waiting_tokens(reading, 100) == 400
    reading = NAMES.read(TRITON)
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
    reading = NAMES.read(page)
    assert (reading.waiting, reading.running, reading.cache, reading.tokens) == (
        waiting,
        running,
        cache,
        tokens,
    )


@given(st.text(max_size=300))
def test_values_are_finite_and_not_negative_for_any_page(text: str) -> None:
    reading = NAMES.read(VLLM + text + "\nvllm:num_requests_waiting NaN\nvllm:num_requests_running -3\n")
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
    assert prometheus.value(answer) == value


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
        prometheus.value(answer)


async def test_tokens_per_second_are_counted_over_replicas_whose_pages_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, totals = [100.0], {"a": 1000.0, "b": 5000.0}
    monkeypatch.setattr(clock, "monotonic", lambda: now[0])

    async def page(request: web.Request) -> web.Response:
        total = totals[request.match_info["pod"]]
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
        await read.read({key: Request([metric], pods)})
        assert read.engine_load(key) is None
        assert [health.healthy for health in read.of(key)[1]] == [False]
        now[0], totals["a"], totals["b"] = 110.0, 2000.0, 5500.0
        await read.read({key: Request([metric], pods)})
        assert read.engine_load(key) == EngineLoad(150.0, 2, 4.0, 0.9)
        assert read.of(key)[0] == {"TokensPerSecond": 150.0}
        now[0] = 171.0
        assert read.engine_load(key) is None, "a minute old"
    finally:
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
        await read.read({key: Request([metric], [pod])})
        assert read.of(key)[0] == ({"TokenQueueDepth": 1000.0} if is_marked else {})
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
    before = {"local": usage.NodeUsage(10, {where: ContainerUsage(cpu_seconds=1)})}
    after = {
        "local": usage.NodeUsage(20, {where: ContainerUsage(cpu_seconds=3, working_set=512, gpu_duty=40)})
    }
    assert usage.share("cpu", [pod], before, after) == pytest.approx(0.4)
    assert usage.share("memory", [pod], {}, after) == 0.5
    assert usage.share("cpu", [pod], {}, after) is None
    assert usage.share("cpu", [pod], after, before) is None, "it was started again"

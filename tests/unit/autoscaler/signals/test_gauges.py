"""What engines, nodes and a Prometheus say, as numbers."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.signals import engines, prometheus, usage
from serving import errors
from serving.resources.cadvisor import Figures, Where

VLLM = """# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{model_name="m"} 4.0
vllm:num_requests_running{model_name="m"} 8.0
vllm:kv_cache_usage_perc{model_name="m"} 0.75
vllm:prompt_tokens_total{model_name="m"} 1000.0
vllm:generation_tokens_total{model_name="m"} 500.0
"""
TRITON = """nv_inference_pending_request_count{model="a",version="1"} 2
nv_inference_pending_request_count{model="b",version="1"} 3
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="fraction",model="a"} 0.5
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="max",model="a"} 900
"""


def test_an_engines_page_is_read_by_its_own_names() -> None:
    reading = engines.read(VLLM)
    assert (reading.waiting, reading.running, reading.cache, reading.tokens) == (4, 8, 0.75, 1500)
    assert engines.waiting_tokens(reading, 100) == 400
    reading = engines.read(TRITON)
    assert (reading.waiting, reading.cache, reading.tokens) == (5, 0.5, None)


@given(st.text(max_size=300))
def test_no_page_makes_a_value_that_is_none_or_negative(text: str) -> None:
    reading = engines.read(VLLM + text + "\nvllm:num_requests_waiting NaN\nvllm:num_requests_running -3\n")
    for value in (reading.waiting, reading.running, reading.cache, reading.tokens):
        assert value is not None
        assert 0 <= value < math.inf


@pytest.mark.parametrize(
    ("answer", "value"),
    [
        ({"status": "success", "data": {"resultType": "scalar", "result": [1, "2.5"]}}, 2.5),
        ({"status": "success", "data": {"resultType": "vector", "result": [{"value": [1, "1"]}, {"value": [1, "2"]}]}}, 3),
    ],
    ids=["scalar", "vector"],
)  # fmt: skip
def test_a_querys_value_is_the_sum_of_its_samples(answer: object, value: float) -> None:
    assert prometheus.value(answer) == value


@pytest.mark.parametrize(
    "answer",
    [
        None, [], {}, {"status": "error", "error": "parse"},
        {"status": "success", "data": {"resultType": "vector", "result": []}},
        {"status": "success", "data": {"resultType": "scalar", "result": [1, "NaN"]}},
        {"status": "success", "data": {"resultType": "scalar", "result": [1, "-1"]}},
    ],
)  # fmt: skip
def test_an_answer_without_a_plausible_value_is_no_value(answer: object) -> None:
    with pytest.raises(errors.Unavailable):
        prometheus.value(answer)


def test_a_share_is_of_what_a_container_may_use() -> None:
    pod = {"metadata": {"namespace": "n", "name": "p"}, "spec": {"nodeName": "local", "containers": [
        {"name": "c", "resources": {"limits": {"cpu": "500m", "memory": "1Ki"}}}, {"name": "beside"}]}}  # fmt: skip
    where = Where("n", "p", "c")
    before = {"local": usage.Reading(10, {where: Figures(cpu_seconds=1)})}
    after = {"local": usage.Reading(20, {where: Figures(cpu_seconds=3, working_set=512, gpu_duty=40)})}
    assert usage.share("cpu", [pod], before, after) == pytest.approx(0.4)
    assert usage.share("memory", [pod], {}, after) == 0.5
    assert usage.share("cpu", [pod], {}, after) is None
    assert usage.share("cpu", [pod], after, before) is None, "it was started again"

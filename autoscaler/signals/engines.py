"""Parses the metrics pages of inference engines, by a table of the engines' metric names. Pure.

Sources are the engines' documentation: vLLM "Production metrics", SGLang "Production metrics", TGI "Metrics"
(v3), Triton "Metrics" and its TensorRT-LLM backend's README.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

WAITING_TOKENS = "waiting_tokens"
WAITING = "waiting"
RUNNING = "running"
CACHE = "cache"
PROMPT_TOKENS = "prompt_tokens"
GENERATED_TOKENS = "generated_tokens"

ENGINES: dict[str, dict[str, tuple[str, ...]]] = {
    "vllm": {
        WAITING: ("vllm:num_requests_waiting",),
        RUNNING: ("vllm:num_requests_running",),
        CACHE: ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
        PROMPT_TOKENS: ("vllm:prompt_tokens_total",),
        GENERATED_TOKENS: ("vllm:generation_tokens_total",),
    },
    "sglang": {
        WAITING: ("sglang:num_queue_reqs",),
        RUNNING: ("sglang:num_running_reqs",),
        CACHE: ("sglang:token_usage",),
        PROMPT_TOKENS: ("sglang:prompt_tokens_total",),
        GENERATED_TOKENS: ("sglang:generation_tokens_total",),
    },
    "tgi": {
        WAITING: ("tgi_queue_size",),
        RUNNING: ("tgi_batch_current_size",),
        PROMPT_TOKENS: ("tgi_request_input_length_sum",),
        GENERATED_TOKENS: ("tgi_request_generated_tokens_sum",),
    },
    "triton": {
        # A request waits either in Triton's own queue or in that of the batch manager behind it.
        WAITING: ("nv_inference_pending_request_count", 'nv_trt_llm_request_metrics{request_type="waiting"}'),
        RUNNING: ('nv_trt_llm_request_metrics{request_type="active"}',),
        CACHE: ('nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="fraction"}',),
        PROMPT_TOKENS: ("nv_llm_input_token_len_sum",),
        GENERATED_TOKENS: ("nv_llm_output_token_len_sum",),
    },
    # Our runtime has vLLM's names, and one of its own.
    "transformers": {WAITING_TOKENS: ("slipway_prompt_tokens_waiting",)},
}
"""Metric names by engine and field, the newest first. A name with a label selects that series alone. Series
of one name are added up, except for a share (`CACHE`), of which the highest counts."""

_SAMPLE = re.compile(r"^([a-zA-Z_:][\w:]*)(\{.*\})? (\S+)")
_LABEL = re.compile(r'(\w+="[^"]*")')


@dataclass(frozen=True, slots=True)
class EngineReading:
    """The load of one replica; a field is None where the engine does not export it."""

    waiting: float | None = None
    """Waiting requests."""
    running: float | None = None
    waiting_tokens: float | None = None
    cache: float | None = None
    """Share of the KV cache in use, 0 to 1."""
    prompt_tokens: float | None = None
    """Total since the replica started."""
    generated_tokens: float | None = None
    """Total since the replica started."""

    @property
    def tokens(self) -> float | None:
        """Prompt and generated tokens since the replica started."""
        known = [part for part in (self.prompt_tokens, self.generated_tokens) if part is not None]
        return sum(known) if known else None


def read(text: str) -> EngineReading:
    """Parse a replica's page, by the metric names of all engines; values that are not finite are ignored."""
    values: dict[str, float] = {}
    for line in text.splitlines():
        sample = None if line.startswith("#") else _SAMPLE.match(line)
        if sample is None:
            continue
        names = [sample[1], *(f"{sample[1]}{{{label}}}" for label in _LABEL.findall(sample[2] or ""))]
        for field in filter(None, map(_FIELD_OF.get, names)):
            value = _number(sample[3])
            if value is not None:
                together = max if field == CACHE else float.__add__
                values[field] = together(values.get(field, 0.0), value)
    return EngineReading(**values)


def waiting_tokens(reading: EngineReading, prompt_length: float) -> float | None:
    """Return the waiting prompt tokens: the engine's count, or waiting requests times `prompt_length`."""
    if reading.waiting_tokens is not None:
        return reading.waiting_tokens
    return reading.waiting * prompt_length if reading.waiting is not None else None


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 <= value < float("inf") else None


def _fields() -> Iterable[tuple[str, str]]:
    for names in ENGINES.values():
        for field, known in names.items():
            for name in known:
                yield name, field


_FIELD_OF = dict(_fields())

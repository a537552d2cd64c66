"""A replica's sequences and requests share the memory that its limit leaves free."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from serving import errors
from serving.images.documents.output_manifest import OutputManifest
from serving.runtimes import cgroups, process, request_memory
from serving.runtimes.request_memory import RequestMemory
from serving.runtimes.served_model import ServedModel
from serving.runtimes.startup import StartupReport
from serving.runtimes.transformers import server
from serving.settings import RuntimeSettings
from serving.system import procfs
from tests.objects.models import checkpoints
from tests.rig import optional_modules

torch = optional_modules.torch()
transformers = optional_modules.transformers()
checkpoint = optional_modules.lazy("serving.runtimes.transformers.checkpoint")
MIB = 1 << 20
CONTEXT = 100_000
SETTINGS = RuntimeSettings()
OPTIONS = process.options(
    {
        "SLIPWAY_MODEL_NAME": "m",
        "SLIPWAY_MODEL_VERSION": "v1",
        "SLIPWAY_MODEL_DIR": "/models",
        "SLIPWAY_MODEL_DIGEST": "d",
        "SLIPWAY_MODEL_FILES_DIGEST": "f",
    },
    SETTINGS,
)


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> int:
    """Return the bytes that the memory limit of the process leaves free."""
    monkeypatch.setattr(cgroups, "memory_limit", lambda: 1024 * MIB)
    monkeypatch.setattr(request_memory, "private_memory", lambda: 300 * MIB)
    monkeypatch.setattr(procfs, "available_memory", lambda: 8192 * MIB)
    return 724 * MIB


def started(model: Any) -> tuple[int, RequestMemory]:
    """Return the number of sequences, of `CONTEXT` tokens, and the bounds of requests of a model's server."""
    loaded = checkpoint.Checkpoint(model, SimpleNamespace(), CONTEXT)
    served = ServedModel("transformers", "m", "v1", StartupReport(0.0))
    warm = server._warm(loaded, OutputManifest())
    with server._application(warm, served, OPTIONS, SETTINGS) as app:
        return app._engine._limits.sequences, app._large.memory


def test_requests_have_the_memory_that_keys_and_values_do_not_take(tmp_path: Path, free: int) -> None:
    token_bytes = 2 * 2 * 2 * 16 * 4  # layers, keys and values, heads, channels, bytes
    sequences, bounds = started(checkpoints.write(tmp_path))
    cache = (sequences + 1) * CONTEXT * token_bytes
    assert free / 2 - CONTEXT * token_bytes < cache <= free / 2
    assert bounds.decoding == pytest.approx((free - cache) / 2, rel=1e-4)
    assert bounds.bodies == pytest.approx((free - cache) / 4, rel=1e-4)


@pytest.mark.usefixtures("free")
def test_sequences_are_counted_by_the_compressed_keys_and_values_when_a_model_has_these() -> None:
    width = {"vocab_size": 64, "hidden_size": 16, "intermediate_size": 16, "first_k_dense_replace": 1}
    layers = {"num_hidden_layers": 1, "num_attention_heads": 8, "num_key_value_heads": 8}
    heads = {"q_lora_rank": None, "qk_nope_head_dim": 8, "v_head_dim": 8}
    # Of each token the cache has one head of these many channels, not 2 * 8 * 8.
    cached = {"kv_lora_rank": 16, "qk_rope_head_dim": 8}
    config = transformers.DeepseekV2Config(**width | layers | heads | cached)
    model = transformers.DeepseekV2ForCausalLM(config).eval()
    sequences, _ = started(model)
    assert sequences == 362 * MIB // ((16 + 8) * 4 * CONTEXT) - 1


def test_checkpoint_is_invalid_when_the_first_run_fails() -> None:
    config = transformers.RwkvConfig(
        vocab_size=64, hidden_size=16, num_hidden_layers=2, attention_hidden_size=16
    )
    loaded = checkpoint.Checkpoint(transformers.RwkvForCausalLM(config).eval(), SimpleNamespace(), 64)
    with pytest.raises(errors.Permanent, match="its first run failed: ") as refused:
        server._warm(loaded, OutputManifest())
    assert refused.value.reason == "InvalidCheckpoint"


def test_reason_of_a_first_run_without_memory_is_not_the_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from serving.runtimes.transformers import decoder

    def full(*_: object, **__: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(decoder.Decoder, "prefill", full)
    loaded = checkpoint.Checkpoint(checkpoints.write(tmp_path), SimpleNamespace(), 64)
    with pytest.raises(errors.Permanent, match="no memory for the first run: CUDA out of memory") as refused:
        server._warm(loaded, OutputManifest())
    assert refused.value.reason == "OutOfMemory"

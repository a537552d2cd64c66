"""Which checkpoints are refused before their weights are read."""

import json
from pathlib import Path
from typing import Any

import pytest

from serving import errors
from tests.rig import optional_modules

optional_modules.transformers()
checkpoint = optional_modules.lazy("serving.runtimes.transformers.checkpoint")
MIXED = ["linear_attention", "full_attention"]


@pytest.mark.parametrize(
    "config",
    [
        {"model_type": "qwen3_5_text", "num_hidden_layers": 2, "layer_types": MIXED},
        {"model_type": "qwen3_5", "text_config": {"num_hidden_layers": 2, "layer_types": MIXED}},
    ],
    ids=["text", "text-and-images"],
)
def test_checkpoint_is_refused_when_a_layer_keeps_other_state_than_keys_and_values(
    tmp_path: Path, config: dict[str, Any]
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config))
    message = "config.json: layer_types: must be layers of attention, got linear_attention"
    with pytest.raises(errors.Permanent, match=message) as refused:
        checkpoint.load_folder(str(tmp_path), "cpu")
    assert refused.value.reason == "InvalidCheckpoint"


ROPE = {"rope_theta": 10_000.0, "original_max_position_embeddings": 32}


@pytest.mark.parametrize(
    ("rope", "context"),
    [
        (ROPE | {"rope_type": "longrope", "short_factor": [1.0] * 8, "long_factor": [4.0] * 8}, 32),
        ({"rope_theta": 10_000.0, "rope_type": "default"}, 64),
    ],
    ids=["longrope", "default"],
)
def test_context_is_the_original_one_when_long_sequences_have_other_frequencies(
    tmp_path: Path, rope: dict[str, Any], context: int
) -> None:
    from transformers import LlamaForCausalLM

    from serving.runtimes.transformers import llama

    tokenizer = llama.for_chats(llama.byte_level())
    config = llama.config(tokenizer, width=64, layers=1, context=64, rope_parameters=rope)
    LlamaForCausalLM(config).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    assert checkpoint.load_folder(str(tmp_path), "cpu").context == context

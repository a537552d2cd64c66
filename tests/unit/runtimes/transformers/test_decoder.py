"""Rows of the cache are as if no sequence had had them before."""

from pathlib import Path
from typing import TYPE_CHECKING

from tests.objects.models import checkpoints
from tests.rig import optional_modules

if TYPE_CHECKING:
    from serving.runtimes.transformers.decoder import Decoder

torch = optional_modules.torch()
transformers = optional_modules.transformers()
decoder = optional_modules.lazy("serving.runtimes.transformers.decoder")
LONG = [7 * place % 256 for place in range(40)]


def logits(used: "Decoder") -> "torch.Tensor":
    """Return the logits after two prompts, of which the first is the shorter, and after a token of each."""
    read = used.prefill([[5, 6], LONG], 0)
    return torch.cat([read, used.step([8, 9], [2, len(LONG)])])


def test_cleared_row_has_no_influence_when_its_sequence_had_no_numbers(tmp_path: Path) -> None:
    model = checkpoints.write(tmp_path)
    used = decoder.Decoder(model, rows=2, capacity=64)
    used.prefill([LONG, LONG], 0)
    with torch.inference_mode():
        for whole in (used._cache.layers[0].keys, used._cache.layers[0].values):
            whole[0, :, 3] = float("nan")
    after = used.step([1, 1], [len(LONG)] * 2)
    assert after[0].isnan().all()
    assert after[1].isfinite().all()
    used.clear(0, len(LONG) + 1)
    fresh = decoder.Decoder(model, rows=2, capacity=64)
    torch.testing.assert_close(logits(used), logits(fresh))


def test_prompts_are_read_when_only_the_text_configuration_has_the_number_of_layers() -> None:
    text = {"vocab_size": 256, "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 4}
    size = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
    pixels = {"image_size": 28, "patch_size": 14}
    torch.manual_seed(7)
    # Gemma's from 4B on; its class has the configurations of texts and of images apart.
    config = transformers.Gemma3Config(text_config=text | heads, vision_config=size | pixels)
    model = transformers.Gemma3ForConditionalGeneration(config).eval()
    used = decoder.Decoder(model, rows=1, capacity=64)
    with torch.inference_mode():
        expected = model(input_ids=torch.tensor([LONG])).logits[:, -1]
    torch.testing.assert_close(used.prefill([LONG], 0), expected)


def test_rows_that_differ_have_no_common_first_position_when_a_model_asks(tmp_path: Path) -> None:
    """Llama 4 scales the queries of all rows by it."""
    used = decoder.Decoder(checkpoints.write(tmp_path), rows=2, capacity=64)
    used.prefill([LONG, [5, 6]], 0)
    used.step([8, 9], [len(LONG), 2])
    assert used._cache.layers[0].get_seq_length() == 0
    used.step([8], [len(LONG) + 1])
    assert used._cache.layers[0].get_seq_length() == len(LONG) + 1


def test_prompt_that_begins_with_a_row_has_the_logits_of_the_whole_prompt(tmp_path: Path) -> None:
    used = decoder.Decoder(checkpoints.write(tmp_path), rows=3, capacity=64)
    used.prefill([LONG, LONG], 0)
    used.step([8, 9], [len(LONG)] * 2)
    used.move(1, 2, len(LONG) + 1)
    used.begin_prefilled(2, len(LONG) + 1)
    continued = used.prefill_chunk([5, 6], len(LONG) + 1)
    torch.testing.assert_close(continued, used.prefill([[*LONG, 9, 5, 6]], 0)[0])

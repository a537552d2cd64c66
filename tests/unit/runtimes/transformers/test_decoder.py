"""Rows of the cache are as if no sequence had had them before."""

from pathlib import Path
from typing import TYPE_CHECKING

from tests.objects.models import checkpoints
from tests.rig import optional_modules

if TYPE_CHECKING:
    from serving.runtimes.transformers.decoder import Decoder

torch = optional_modules.torch()
optional_modules.transformers()
decoder = optional_modules.lazy("serving.runtimes.transformers.decoder")
LONG = [7 * place % 256 for place in range(40)]


def logits(used: "Decoder") -> "torch.Tensor":
    """Return the logits after two prompts, of which the first is the shorter, and after a token of each."""
    read = used.read_prompts([[5, 6], LONG], 0)
    return torch.cat([read, used.step([8, 9], [2, len(LONG)])])


def test_cleared_row_has_no_influence_when_its_sequence_had_no_numbers(tmp_path: Path) -> None:
    model = checkpoints.write(tmp_path)
    used = decoder.Decoder(model, rows=2, capacity=64)
    used.read_prompts([LONG, LONG], 0)
    with torch.inference_mode():
        for whole in (used._cache.layers[0].keys, used._cache.layers[0].values):
            whole[0, :, 3] = float("nan")
    after = used.step([1, 1], [len(LONG)] * 2)
    assert after[0].isnan().all()
    assert after[1].isfinite().all()
    used.clear(0, len(LONG) + 1)
    fresh = decoder.Decoder(model, rows=2, capacity=64)
    torch.testing.assert_close(logits(used), logits(fresh))

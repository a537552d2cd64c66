"""On an NVIDIA GPU, language models compute the same as on the CPU, also in forks."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.objects.models import checkpoints
from tests.rig import optional_modules

torch = optional_modules.torch()
optional_modules.transformers()
GPU = Path("/dev/nvidia0")

PROGRAM = """
import importlib, json, os, sys
from serving.runtimes import threads
threads.limit_threads()
from serving.runtimes.transformers import server
for name in server.PRELOAD:
    importlib.import_module(name)

def tokens(device):
    from serving.runtimes.transformers import checkpoint
    from serving.runtimes.transformers.decoder import Decoder
    loaded = checkpoint.load_folder(sys.argv[1], device)
    decoder = Decoder(loaded.model, rows=4, capacity=256)
    prompts = [[5, 6, 7, 8], [9, 10], list(range(20, 60))]
    last = decoder.prefill(prompts, 0).argmax(-1).tolist()
    lengths, rows = [len(prompt) for prompt in prompts], [[token] for token in last]
    decoder.prefill_chunk(list(range(100, 130)), 0)
    rows.append([int(decoder.prefill_chunk(list(range(130, 140)), 30).argmax())])
    decoder.add_prefilled(3, 40)
    lengths.append(40)
    for _ in range(40):
        chosen = decoder.step([row[-1] for row in rows], lengths).argmax(-1).tolist()
        lengths = [length + 1 for length in lengths]
        for row, token in zip(rows, chosen):
            row.append(token)
    return rows

if (child := os.fork()) == 0:
    from serving.runtimes.torch import device
    print(json.dumps({name: tokens(device.usable() if name == "cuda" else name) for name in ("cpu", "cuda")}),
        flush=True)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
"""


@pytest.mark.skipif(not GPU.exists(), reason="this machine has no NVIDIA GPU")
def test_forked_runtime_generates_the_same_on_the_gpu(tmp_path: Path) -> None:
    if not torch.cuda.is_available():
        pytest.skip("PyTorch finds no GPU")
    checkpoints.write(tmp_path)
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        stdout=subprocess.PIPE,
        check=True,
        timeout=100,
        env={"SLIPWAY_DEVICE": "cuda", "HF_HUB_OFFLINE": "1"},
    )
    generated = json.loads(run.stdout)
    assert generated["cuda"] == generated["cpu"]

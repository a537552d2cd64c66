"""A process that has imported the runtime of language models has one thread, and its forks import nothing."""

import subprocess
import sys
from pathlib import Path

import orjson

from tests.objects.models import checkpoints
from tests.rig import optional_modules

optional_modules.transformers()

PROGRAM = """
import importlib, json, os, sys
from serving.runtimes import threads
threads.limit_threads()
from serving.runtimes.transformers import server
for name in server.PRELOAD:
    importlib.import_module(name)
tasks, before = len(os.listdir("/proc/self/task")), set(sys.modules)
from serving.runtimes.transformers import checkpoint
from serving.runtimes.transformers.decoder import Decoder
if (child := os.fork()) == 0:
    loaded = checkpoint.load_folder(sys.argv[1], "cpu")
    prompt = loaded.vocabulary.encode_chat([{"role": "user", "content": "hello"}], 64)
    decoder = Decoder(loaded.model, rows=2, capacity=64)
    decoder.prefill([prompt], 0)
    print(json.dumps({"tasks": tasks, "imported": sorted(set(sys.modules) - before)}), flush=True)
    os._exit(0)
os.waitpid(child, 0)
"""


def test_fork_of_the_preloaded_runtime_loads_a_checkpoint_without_an_import(tmp_path: Path) -> None:
    checkpoints.write(tmp_path)
    output = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)], stdout=subprocess.PIPE, check=True, timeout=100
    ).stdout
    assert orjson.loads(output) == {"tasks": 1, "imported": []}

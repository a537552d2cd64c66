"""Writes, loads and runs a tiny checkpoint on import: imported before forks only, never in an ordinary start.

The first checkpoint of a process imports hundreds of modules, which took 2.8 s of each fork. The checkpoint
is Llama's: a fork imports the modules of another architecture itself. Starts no thread and leaves no files.
"""

import os
import tempfile

# Transformers would load weights by threads, and a process with threads is not forked.
os.environ.setdefault("HF_DEACTIVATE_ASYNC_LOAD", "1")

from transformers import LlamaForCausalLM

from serving.runtimes import threads
from serving.runtimes.transformers import checkpoint, llama
from serving.runtimes.transformers.decoder import Decoder


def _run_tiny_checkpoint() -> None:
    tokenizer = llama.for_chats(llama.byte_level())
    config = llama.config(tokenizer, width=8, layers=1, context=64)
    with tempfile.TemporaryDirectory(prefix="slipway-warm-up-") as folder:
        LlamaForCausalLM(config).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        loaded = checkpoint.load_folder(folder, "cpu")
    prompt = loaded.vocabulary.encode_chat([{"role": "user", "content": "hello"}], 64)
    decoder = Decoder(loaded.model, rows=1, capacity=64)
    decoder.prefill([prompt], first_row=0)
    decoder.step([prompt[0]], [len(prompt)])
    loaded.vocabulary.text_decoder().add(prompt[0])


_run_tiny_checkpoint()
threads.loaded()  # inspects the loaded numeric libraries, once for all forks

"""The runtime of language models: `python -m serving.runtimes.transformers.server`, one model, one process.

`serving.runtimes.process` documents its environment and life, `checkpoint` the files of a model.
SLIPWAY_BATCH_SIZE is the number of sequences that it generates together.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import logging
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from serving import errors
from serving.runtimes import process, threads
from serving.runtimes.loading import ModelFiles

if TYPE_CHECKING:
    from serving.images.documents.output_manifest import OutputManifest
    from serving.runtimes.served_model import ServedModel
    from serving.runtimes.transformers.checkpoint import Checkpoint
    from serving.runtimes.transformers.openai.app import OpenAiApp
    from serving.settings import RuntimeSettings

PRELOAD = (
    *process.PRELOAD,
    "torch",
    "transformers",
    "serving.runtimes.torch.device",
    "serving.runtimes.transformers.checkpoint",
    "serving.runtimes.transformers.decoder",
    "serving.runtimes.transformers.engine",
    "serving.runtimes.transformers.memory",
    "serving.runtimes.transformers.openai.app",
    "serving.runtimes.transformers.warm_up",
)
"""Modules that are imported before forks, so that forks import none."""
FILES = ModelFiles(
    ("config.json",),
    (
        "*.safetensors",
        "*.safetensors.index.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "special_tokens_map.json",
        "added_tokens.json",
        "generation_config.json",
        "chat_template.jinja",
    ),
)
"""The files of a Hugging Face checkpoint that are loaded."""
_log = logging.getLogger(__name__)
_TOKENS_PER_CALL = 128
"""`EngineLimits.tokens_per_call` on a CPU: a call reads all weights from memory, which takes the time of some
tens of tokens."""
_STOP_SECONDS = 5.0
"""Longest wait for the engine's thread, which ends after its next token."""


class _Warm(NamedTuple):
    """A model that has run once."""

    checkpoint: Checkpoint
    token_bytes: int
    """Bytes of a token's keys and values."""


def main() -> int:
    """Serve until SIGTERM; return the exit status."""
    # Transformers must fetch no file, as the model's digest covers only the files of its image.
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    # A prompt is a batch of one text, for which the tokenizer would start a thread for each core.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    return process.main(process.Runtime("transformers", FILES, _framework, _application))


def _framework() -> process.Framework[Any]:
    for module in ("torch", "transformers"):
        if importlib.util.find_spec(module) is None:
            raise errors.Permanent(
                "RuntimeMissing", f"{module} is not installed (pip install 'slipway[llm]')"
            )
    from serving.runtimes.torch import device  # noqa: PLC0415 it imports PyTorch
    from serving.runtimes.transformers import checkpoint  # noqa: PLC0415 as above

    return process.Framework(load=functools.partial(checkpoint.load, device=device.usable()), warm=_warm)


def _warm(loaded: Checkpoint, _: OutputManifest) -> _Warm:
    """Run the model once in each way in which the decoder calls it, as first runs allocate and compile.

    Raises:
        errors.Permanent: `InvalidCheckpoint`, the model fails, as its cache has another form; `OutOfMemory`.
    """
    import torch  # noqa: PLC0415 the framework has imported it

    from serving.runtimes.transformers.decoder import Decoder  # noqa: PLC0415 it imports PyTorch

    decoder = Decoder(loaded.model, rows=1, capacity=64)
    prompt = [0, 0]  # any tokens
    try:
        decoder.prefill([prompt], first_row=0)
        decoder.prefill_chunk(prompt, first_position=0)
        decoder.add_prefilled(row=0, length=len(prompt))
        decoder.step([0], [len(prompt)])
        return _Warm(loaded, decoder.token_bytes)
    except (torch.OutOfMemoryError, MemoryError) as error:
        raise errors.Permanent("OutOfMemory", f"no memory for the first run: {error}") from error
    except Exception as error:
        _log.exception("the first run of the model failed")
        text = f"its first run failed: {type(error).__name__}: {error}"
        raise errors.Permanent("InvalidCheckpoint", text) from error


@contextmanager
def _application(
    warm: _Warm, served: ServedModel, options: process.Options, settings: RuntimeSettings
) -> Iterator[OpenAiApp]:
    """Run the engine in a thread of its own while the block runs; yield the application."""
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 with the application

    from serving.runtimes import request_memory  # noqa: PLC0415 as above
    from serving.runtimes.large_requests import LargeRequests  # noqa: PLC0415 as above
    from serving.runtimes.transformers import memory  # noqa: PLC0415 it imports PyTorch
    from serving.runtimes.transformers.decoder import Decoder  # noqa: PLC0415 as above
    from serving.runtimes.transformers.engine import EngineLimits, GenerationEngine  # noqa: PLC0415 as above
    from serving.runtimes.transformers.metrics import EngineMetrics  # noqa: PLC0415 as above
    from serving.runtimes.transformers.openai.app import OpenAiApp  # noqa: PLC0415 as above
    from serving.runtimes.transformers.prefix_cache import PrefixCache  # noqa: PLC0415 as above

    loaded = warm.checkpoint
    device = loaded.model.device
    cache = memory.shape(
        options.batch_size or settings.sequences,
        min(loaded.context, settings.context_tokens or loaded.context),
        memory.cache_tokens(device, warm.token_bytes),
    )
    sequences, context = cache
    _log.info("%d sequences of at most %d tokens", sequences, context)
    per_step = settings.prompt_tokens_per_step
    # On a GPU the calls of a small model take as long with one token as with all of a step.
    per_call = min(_TOKENS_PER_CALL, per_step) if device.type == "cpu" else per_step
    limits = EngineLimits(sequences, context, settings.waiting_sequences, per_step, per_call)
    # The first prompt allocates the cache, so that it is not in use yet.
    bounds = request_memory.bounds(settings, memory.main_memory(cache, device, warm.token_bytes))
    engine = GenerationEngine(
        Decoder(loaded.model, sequences, context),
        loaded.vocabulary,
        limits,
        EngineMetrics(served.name),
        device,
        prefixes=PrefixCache(sequences if settings.prefix_cache else 0, per_call),
    )

    def run_engine() -> None:
        threads.raise_openmp(os.environ)  # OpenMP has a limit for each thread
        engine.run()

    thread = threading.Thread(target=run_engine, name="engine", daemon=True)
    thread.start()
    try:
        with ThreadPoolExecutor(1, "codec") as codec:
            large = LargeRequests(bounds, codec)
            yield OpenAiApp(engine, loaded.vocabulary, served, settings, context, large=large)
    finally:
        engine.stop()
        thread.join(_STOP_SECONDS)


if __name__ == "__main__":
    sys.exit(main())

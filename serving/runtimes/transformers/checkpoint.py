"""Loads a Hugging Face checkpoint: configuration, weights in safetensors, tokenizer, chat template.

Runs no code of the checkpoint and asks no hub.
"""

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from serving import errors
from serving.runtimes.loading import VerifiedModel
from serving.runtimes.transformers.vocabulary import Vocabulary

CONFIG = "config.json"
_ATTENTION_LAYERS = {"full_attention", "sliding_attention", "chunked_attention"}
"""Kinds of layers whose state is keys and values of earlier tokens; `KvCache` holds no other state."""
# A progress bar starts a thread, and nobody reads the bars of a replica.
transformers.logging.disable_progress_bar()


@dataclass(frozen=True)
class Checkpoint:
    """A loaded model."""

    model: Any
    vocabulary: Vocabulary
    context: int
    """Tokens of a prompt and its answer together, at most."""


def load(files: VerifiedModel, device: str) -> Checkpoint:
    """Load a checkpoint from its verified files.

    Raises:
        errors.Permanent: `InvalidCheckpoint`, Transformers cannot load it, or it is no language model of
            attention layers.
    """
    with tempfile.TemporaryDirectory(prefix="slipway-checkpoint-") as folder:
        for file in (files.program, *files.model_weights.values()):
            # `model_weights` also has the tokenizer's and the other files. By the link the library opens the
            # file that was verified, even if another file has its name now.
            Path(folder, file.name).symlink_to(file.reopen_path)
        try:
            return load_folder(folder, device)
        except errors.Permanent:
            raise
        except Exception as error:  # the library raises errors of any type
            raise errors.Permanent("InvalidCheckpoint", f"cannot be loaded: {error}") from error


def load_folder(folder: str, device: str) -> Checkpoint:
    """Load a checkpoint from a folder of trusted files.

    Raises:
        errors.Permanent: as `load`; Transformers also raises errors of its own.
    """
    config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    foreign = set(getattr(config.get_text_config(), "layer_types", None) or ()) - _ATTENTION_LAYERS
    if foreign:
        rule = f"must be layers of attention, got {', '.join(sorted(foreign))}"
        raise errors.Permanent("InvalidCheckpoint", f"{CONFIG}: layer_types: {rule}")
    # Few CPUs compute in half precision faster than in single.
    dtype = torch.float32 if device == "cpu" else "auto"
    model = AutoModelForCausalLM.from_pretrained(
        folder,
        config=config,
        dtype=dtype,
        local_files_only=True,
        trust_remote_code=False,
        use_safetensors=True,
        attn_implementation="sdpa",
    )
    model.to(device).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    if not tokenizer.is_fast:
        raise errors.Permanent("InvalidCheckpoint", "tokenizer.json: must be in the checkpoint")
    # A tokenizer may have more tokens than the model has embeddings, and the reverse.
    embeddings = model.get_input_embeddings().num_embeddings
    vocabulary = Vocabulary(tokenizer, _ends(model, tokenizer), embeddings)
    return Checkpoint(model, vocabulary, _context(config))


def _ends(model: Any, tokenizer: Any) -> frozenset[int]:
    """Return the tokens that end a generation: those of the generation configuration and of the tokenizer."""
    given = model.generation_config.eos_token_id
    listed = given if isinstance(given, list) else [given]
    return frozenset(token for token in (*listed, tokenizer.eos_token_id) if token is not None)


def _context(config: Any) -> int:
    """Return the most tokens of a sequence.

    The decoder lets attention read all earlier positions. This agrees with a model of windowed attention only
    for sequences within the window, so the window bounds the sequence. `longrope` has other frequencies for
    all positions of a call once one sequence is longer than the original context, and keys in the cache, also
    those of the other sequences, would keep the earlier frequencies.
    """
    text = config.get_text_config()
    windows = [
        window
        for name in ("sliding_window", "attention_chunk_size")
        if (window := getattr(text, name, None)) and getattr(text, "use_sliding_window", True)
    ]
    rope = getattr(text, "rope_parameters", None) or {}
    by_layer_type = [each for each in rope.values() if isinstance(each, dict)]
    originals = [
        each["original_max_position_embeddings"]
        for each in (rope, *by_layer_type)
        if each.get("rope_type") == "longrope"
    ]
    return int(min([text.max_position_embeddings, *windows, *originals]))
